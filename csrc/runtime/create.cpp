// The birth of a communicator: meet the neighbours, agree on the nodes, choose a transport per
// peer.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/cpus.hpp"
#include "runtime/communicator.hpp"
#include "runtime/progress.hpp"
#include "runtime/state.hpp"
#include "transport/mpi/transport.hpp"
#include "transport/shm/group.hpp"
#include "transport/shm/neighbours.hpp"
#include "transport/shm/transport.hpp"

namespace hpcomm {
namespace {

// What the ranks tell each other about themselves, besides their memory.
struct Introduction {
  std::int32_t fake_node = -1;
  std::int32_t cpu_quota = 0;
  std::int32_t has_mpi = 0;
};

struct Peer {
  Introduction introduction;
  std::string cpu_mask;
};

std::string introduce(const CommunicatorOptions& options) {
  Introduction own;
  own.fake_node = options.fake_node;
  if (own.fake_node < 0 && options.ranks_per_node > 0)
    own.fake_node = options.rank / options.ranks_per_node;
  own.cpu_quota = cpu_quota();
  own.has_mpi = options.mpi != nullptr ? 1 : 0;
  return std::string(reinterpret_cast<const char*>(&own), sizeof own) + cpu_mask();
}

std::vector<Peer> read_introductions(const std::vector<std::string>& texts) {
  std::vector<Peer> peers;
  for (const std::string& text : texts) {
    Peer& peer = peers.emplace_back();
    HPCOMM_CHECK(text.size() >= sizeof peer.introduction, Errc::internal,
                 "a rank introduced itself with ", text.size(), " bytes");
    std::memcpy(&peer.introduction, text.data(), sizeof peer.introduction);
    peer.cpu_mask = text.substr(sizeof peer.introduction);
  }
  return peers;
}

void check(const CommunicatorOptions& options) {
  HPCOMM_CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size,
               Errc::invalid_argument, "communicator '", options.name, "': there is no rank ",
               options.rank, " among ", options.size);
  HPCOMM_CHECK(options.timeout_s >= 0, Errc::invalid_argument, "communicator '", options.name,
               "': the timeout must not be negative, not ", options.timeout_s, " s");
  HPCOMM_CHECK(options.ranks_per_node >= 0, Errc::invalid_argument, "communicator '", options.name,
               "': the number of ranks per node must not be negative, not ", options.ranks_per_node,
               "; correct HPCOMM_RANKS_PER_NODE");
}

// The CPUs that the ranks of a node may use together. Masks are united: ranks that are bound to a
// CPU each are not crowded.
int cpus_of(const std::vector<int>& ranks, const std::vector<Peer>& peers) {
  std::string mask;
  int quota = 0;
  for (const int rank : ranks) {
    const Peer& peer = peers[static_cast<std::size_t>(rank)];
    mask = unite_masks(mask, peer.cpu_mask);
    quota = std::max(quota, peer.introduction.cpu_quota);
  }
  const int cpus = count_cpus(mask);
  return quota > 0 ? std::min(quota, cpus) : cpus;
}

void demand_mpi(const CommunicatorOptions& options, const NodeLayout& layout,
                const std::vector<Peer>& peers, const shm::Neighbourhood& neighbourhood) {
  for (int rank = 0; rank < options.size; ++rank) {
    if (peers[static_cast<std::size_t>(rank)].introduction.has_mpi != 0) continue;
    const auto other = std::find_if(layout.node_of.begin(), layout.node_of.end(), [&](int node) {
      return node != layout.node_of[static_cast<std::size_t>(rank)];
    });
    std::string reason;
    for (const shm::Neighbour& neighbour : neighbourhood.ranks)
      if (!neighbour.why_not.empty()) reason = " (" + neighbour.why_not + ")";
    detail::throw_error(
        Errc::unsupported, rank, "communicator '", options.name, "': ranks ", rank, " and ",
        other - layout.node_of.begin(), " share no memory", reason, " and rank ", rank,
        " has no MPI to reach the other; start the ranks with mpiexec, or all on one machine");
  }
}

}  // namespace

std::shared_ptr<Communicator> Communicator::create(CommunicatorOptions options,
                                                   const Exchange& exchange) {
  check(options);
  const Selection checked_early(
      options.selection_override);  // a bad text is this rank's own error, before any exchange
  const shm::Geometry geometry{options.size, options.slot_bytes, options.ring_bytes};
  shm::Meeting meeting = shm::meet_neighbours(geometry, options.rank, options.name,
                                              options.shm_routes, introduce(options), exchange);
  const std::vector<Peer> peers = read_introductions(meeting.extras);
  std::vector<int> fake_nodes;
  fake_nodes.reserve(peers.size());
  for (const Peer& peer : peers) fake_nodes.push_back(peer.introduction.fake_node);
  NodeLayout layout = agree_on_nodes(meeting.reaches, fake_nodes);
  shm::Neighbourhood& neighbourhood = *meeting.neighbourhood;
  if (layout.num_nodes > 1) demand_mpi(options, layout, peers, neighbourhood);
  for (int peer = 0; peer < options.size; ++peer)
    if (!layout.same_node(options.rank, peer)) neighbourhood.forget(peer);

  // Ranks that only pretend to be on other nodes share the CPUs all the same.
  const NodeLayout real = agree_on_nodes(meeting.reaches, std::vector<int>(peers.size(), -1));
  const std::vector<int> local =
      real.ranks_of(real.node_of[static_cast<std::size_t>(options.rank)]);
  const int cpus = cpus_of(local, peers);
  const auto local_size = static_cast<int>(local.size());
  const bool is_crowded = options.oversubscribed || local_size > cpus;
  Progress::instance().note_cpus(local_size, cpus);

  auto state = std::make_unique<State>(std::move(options), std::move(layout));
  const CommunicatorOptions& opts = state->options;
  if (is_crowded) state->spin_ban = std::make_unique<SpinBan>();
  state->bell = &neighbourhood.own().header().bell;
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::make_unique<shm::ShmTransport>(meeting.neighbourhood));
  if (state->layout.num_nodes > 1) {
    transports.push_back(
        mpi::make_transport(*opts.mpi, meeting.epoch, opts.rank, opts.size, opts.name));
    state->polls_mpi = true;
    state->home_thread_only = !opts.mpi->thread_multiple;
  }
  std::shared_ptr<SharedGroup> shared;
  if (state->layout.num_nodes == 1) shared = std::make_shared<shm::Group>(meeting.neighbourhood);
  state->endpoint =
      std::make_unique<Endpoint>(opts.rank, opts.size, opts.name, std::move(transports),
                                 std::move(shared), state->surroundings);
  for (int peer = 0; peer < opts.size; ++peer)
    state->transport_names.emplace_back(state->endpoint->transport_to(peer).name());

  std::shared_ptr<Communicator> communicator(new Communicator(std::move(state)));
  Progress::instance().enlist(communicator);
  return communicator;
}

}  // namespace hpcomm
