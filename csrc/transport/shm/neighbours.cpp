#include "transport/shm/neighbours.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "transport/shm/routes.hpp"

namespace hpcomm::shm {
namespace {

// What a rank tells all others before anything is mapped.
struct CardFields {
  Nonce nonce{};
  std::int32_t pid = 0;
  std::int32_t descriptor = -1;
  std::uint64_t start_time = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t ring_bytes = 0;
  char boot[40]{};  // equal where pids and sockets may mean the same; only saves attempts without
                    // hope
  std::uint32_t routes_length = 0;
  std::uint32_t error_length = 0;
};

struct Card {
  CardFields fields;
  std::string routes;
  std::string error;  // why this rank has no segment
  std::string extra;
};

std::string to_text(const Card& card) {
  CardFields fields = card.fields;
  fields.routes_length = static_cast<std::uint32_t>(card.routes.size());
  fields.error_length = static_cast<std::uint32_t>(card.error.size());
  return std::string(reinterpret_cast<const char*>(&fields), sizeof fields) + card.routes +
         card.error + card.extra;
}

Card to_card(const std::string& text) {
  Card card;
  HPCOMM_CHECK(text.size() >= sizeof card.fields, Errc::internal, "a rank introduced itself with ",
               text.size(), " bytes; all ranks must run the same version of hpcomm");
  std::memcpy(&card.fields, text.data(), sizeof card.fields);
  std::size_t at = sizeof card.fields;
  card.routes = text.substr(at, card.fields.routes_length);
  at += card.fields.routes_length;
  card.error = text.substr(at, card.fields.error_length);
  at += card.fields.error_length;
  card.extra = text.substr(at);
  return card;
}

class MeetingRoom {
 public:
  MeetingRoom(const Geometry& geometry, int rank, const std::string& name,
              const Allgather& allgather)
      : geometry_(geometry),
        rank_(rank),
        allgather_(allgather),
        neighbours_(std::make_shared<Neighbourhood>()) {
    neighbours_->rank = rank;
    neighbours_->name = name;
    neighbours_->ranks.resize(static_cast<std::size_t>(geometry.size));
  }

  Meeting meet(const std::string& routes, const std::string& extra) {
    introduce(routes, extra);
    settle(rank_, std::move(own_), getpid());
    reaches_.assign(neighbours_->ranks.size(), std::vector<bool>(neighbours_->ranks.size(), false));
    for (std::size_t peer = 0; peer < reaches_.size(); ++peer) reaches_[peer][peer] = true;
    for (std::size_t from = 0; from < routes_.size();) {
      const std::size_t comma = std::min(routes_.find(',', from), routes_.size());
      const std::string route = routes_.substr(from, comma - from);
      from = comma + 1;
      if (complete()) break;
      if (route == "proc") {
        try_proc();
      } else if (route == "socket") {
        try_socket();
      } else if (route == "named") {
        try_named();
      } else {
        detail::throw_error(Errc::invalid_argument, -1, "unknown way to shared memory '", route,
                            "'; known are proc, socket, named");
      }
    }
    neighbours_->own().close_descriptor();
    Meeting meeting{neighbours_, reaches_, 0, {}};
    std::memcpy(&meeting.epoch, fields(0).nonce.data(), sizeof meeting.epoch);
    for (Card& card : cards_) meeting.extras.push_back(std::move(card.extra));
    return meeting;
  }

 private:
  void introduce(const std::string& routes, const std::string& extra) {
    Card card;
    card.routes = routes;
    card.extra = extra;
    card.fields.nonce = make_nonce();
    card.fields.pid = getpid();
    card.fields.start_time = process_start_time(getpid());
    card.fields.slot_bytes = geometry_.slot_bytes;
    card.fields.ring_bytes = geometry_.ring_bytes;
    std::ifstream("/proc/sys/kernel/random/boot_id")
        .read(card.fields.boot, sizeof card.fields.boot - 1);
    try {
      check_geometry(geometry_);
      own_ = Segment::create(geometry_, rank_, card.fields.nonce);
      card.fields.descriptor = own_.descriptor();
    } catch (const Error& error) {
      card.error = error.what();
    }
    for (const std::string& text : allgather_(to_text(card))) cards_.push_back(to_card(text));
    HPCOMM_CHECK(cards_.size() == neighbours_->ranks.size(), Errc::internal, "communicator '",
                 neighbours_->name, "' has ", neighbours_->ranks.size(), " ranks, but ",
                 cards_.size(), " introduced themselves");
    for (std::size_t peer = 0; peer < cards_.size(); ++peer) {
      const Card& other = cards_[peer];
      if (!other.error.empty())
        detail::throw_error(Errc::transport, static_cast<int>(peer), "rank ", peer,
                            " of communicator '", neighbours_->name, "': ", other.error);
      if (other.fields.slot_bytes != cards_[0].fields.slot_bytes ||
          other.fields.ring_bytes != cards_[0].fields.ring_bytes)
        detail::throw_error(
            Errc::mismatch, static_cast<int>(peer), "all ranks of communicator '",
            neighbours_->name, "' must use equal HPCOMM_SLOT_BYTES and HPCOMM_RING_BYTES; rank ",
            peer, " has ", other.fields.slot_bytes, " and ", other.fields.ring_bytes,
            ", rank 0 has ", cards_[0].fields.slot_bytes, " and ", cards_[0].fields.ring_bytes);
    }
    routes_ = cards_[0].routes;
  }

  void settle(int peer, Segment segment, pid_t pid) {
    Neighbour& neighbour = neighbours_->at(peer);
    neighbour.segment = std::move(segment);
    neighbour.watch = ProcessWatch::of(pid, fields(peer).start_time);
    neighbour.why_not.clear();
  }

  void map(int peer, int descriptor, pid_t pid) {
    if (descriptor < 0) return;
    Segment segment = Segment::map(descriptor, geometry_, peer, fields(peer).nonce,
                                   neighbours_->at(peer).why_not);
    if (segment) settle(peer, std::move(segment), pid);
  }

  // All ranks learn who has whose memory.
  void agree() {
    std::string row;
    for (const Neighbour& neighbour : neighbours_->ranks) row += neighbour.segment ? '1' : '0';
    reaches_ = matrix(row);
  }

  std::vector<std::vector<bool>> matrix(const std::string& row) {
    std::vector<std::vector<bool>> rows;
    for (const std::string& text : allgather_(row)) {
      std::vector<bool>& bits = rows.emplace_back(neighbours_->ranks.size(), false);
      for (std::size_t i = 0; i < text.size() && i < bits.size(); ++i) bits[i] = text[i] == '1';
    }
    return rows;
  }

  const CardFields& fields(int peer) const { return cards_[static_cast<std::size_t>(peer)].fields; }
  bool has_hope(int a, int b) const { return std::strcmp(fields(a).boot, fields(b).boot) == 0; }
  bool lacks(int a, int b) const {
    return !reaches_[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] && has_hope(a, b);
  }
  bool complete() const {
    for (int owner = 0; owner < geometry_.size; ++owner)
      if (is_wanted(owner)) return false;
    return true;
  }
  bool is_wanted(int owner) const {
    for (int peer = 0; peer < geometry_.size; ++peer)
      if (lacks(peer, owner)) return true;
    return false;
  }
  void barrier() { allgather_(""); }

  void try_proc() {
    for (int peer = 0; peer < geometry_.size; ++peer)
      if (lacks(rank_, peer))
        map(peer,
            open_by_proc(fields(peer).pid, fields(peer).descriptor, neighbours_->at(peer).why_not),
            fields(peer).pid);
    agree();
  }

  void try_socket() {
    DescriptorSocket socket(fields(rank_).nonce);
    if (is_wanted(rank_)) socket.listen(geometry_.size);
    barrier();
    std::vector<std::pair<int, std::size_t>> connections;
    for (int peer = 0; peer < geometry_.size; ++peer)
      if (lacks(rank_, peer))
        connections.emplace_back(peer,
                                 socket.connect(fields(peer).nonce, neighbours_->at(peer).why_not));
    barrier();
    socket.serve(neighbours_->own().descriptor());
    barrier();
    for (const auto& [peer, connection] : connections) {
      pid_t pid = fields(peer).pid;
      const int descriptor = socket.receive(connection, pid, neighbours_->at(peer).why_not);
      map(peer, descriptor, pid);
    }
    agree();
  }

  // Owners that somebody lacks offer a second segment under a name. It replaces the first if all
  // who have the first can open it too, which everybody sees in the exchanged rows.
  void try_named() {
    Segment offered;
    if (is_wanted(rank_)) {
      try {
        offered = Segment::create_named(geometry_, rank_, fields(rank_).nonce,
                                        shm_name(fields(rank_).nonce));
      } catch (const Error& error) {
        neighbours_->at(rank_).why_not = error.what();
      }
    }
    barrier();
    std::vector<Segment> opened(neighbours_->ranks.size());
    opened[static_cast<std::size_t>(rank_)] = std::move(offered);
    std::string row(neighbours_->ranks.size(), '0');
    for (int peer = 0; peer < geometry_.size; ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      if (peer != rank_ && is_wanted(peer) && has_hope(rank_, peer)) {
        std::string& why_not = neighbours_->at(peer).why_not;
        const int descriptor = open_by_name(fields(peer).nonce, why_not);
        if (descriptor >= 0)
          opened[at] = Segment::map(descriptor, geometry_, peer, fields(peer).nonce, why_not);
      }
      row[at] = opened[at] ? '1' : '0';
    }
    const std::vector<std::vector<bool>> named = matrix(row);
    if (opened[static_cast<std::size_t>(rank_)]) shm_unlink(shm_name(fields(rank_).nonce).c_str());
    for (int owner = 0; owner < geometry_.size; ++owner) {
      bool replaces = named[static_cast<std::size_t>(owner)][static_cast<std::size_t>(owner)];
      for (std::size_t peer = 0; peer < named.size(); ++peer)
        if (reaches_[peer][static_cast<std::size_t>(owner)] &&
            !named[peer][static_cast<std::size_t>(owner)])
          replaces = false;
      Segment& candidate = opened[static_cast<std::size_t>(owner)];
      if (replaces && candidate) settle(owner, std::move(candidate), fields(owner).pid);
    }
    agree();
  }

  Geometry geometry_;
  int rank_;
  const Allgather& allgather_;
  std::shared_ptr<Neighbourhood> neighbours_;
  Segment own_;
  std::vector<Card> cards_;
  std::string routes_;
  std::vector<std::vector<bool>> reaches_;
};

}  // namespace

Meeting meet_neighbours(const Geometry& geometry, int rank, const std::string& name,
                        const std::string& routes, const std::string& extra,
                        const Allgather& allgather) {
  return MeetingRoom(geometry, rank, name, allgather).meet(routes, extra);
}

}  // namespace hpcomm::shm
