// Ranks that do not do the same: the same error everywhere, no buffer touched, the group usable.
#include <boost/test/unit_test.hpp>
#include <functional>

#include "support/calls.hpp"
#include "support/runs.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(agreement)

namespace {

constexpr std::size_t kCount = 1000;

/// A valid call that the odd rank changes.
struct Call {
  CollectiveRequest request;
  std::string algorithm;
};

struct Case {
  Collective kind;
  std::function<void(Call&, int size)> change;
  std::vector<std::string> fragments;  // of the text; RANK stands for the odd rank
};

std::string with_rank(std::string text, int rank) {
  for (auto at = text.find("RANK"); at != std::string::npos; at = text.find("RANK"))
    text.replace(at, 4, std::to_string(rank));
  return text;
}

const std::vector<Case>& cases() {
  static const std::vector<std::size_t> unequal[] = {{},
                                                     {},
                                                     {999, 1001},
                                                     {999, 1000, 1001},
                                                     {999, 1000, 1000, 1001},
                                                     {998, 1000, 1000, 1001, 1001}};
  static const std::vector<Case> all = {
      {Collective::allreduce,
       [](Call& c, int) { c.request.count = 1024; },
       {"allreduce on 'world': all ranks must pass the same count; rank 0 has 1000, rank RANK has "
        "1024"}},
      {Collective::allreduce, [](Call& c, int) { c.request.count = 8; }, {"same count", "has 8"}},
      {Collective::allreduce, [](Call& c, int) { c.request.count = 0; }, {"same count", "has 0"}},
      {Collective::allreduce,
       [](Call& c, int) { c.request.dtype = DType::i32; },
       {"same dtype; rank 0 has float32, rank RANK has int32"}},
      {Collective::allreduce,
       [](Call& c, int) { c.request.dtype = DType::f64; },
       {"same dtype; rank 0 has float32, rank RANK has float64"}},
      {Collective::allreduce,
       [](Call& c, int) { c.request.op = ReduceOp::max; },
       {"same op; rank 0 has sum, rank RANK has max"}},
      {Collective::allreduce,
       [](Call& c, int size) {
         c.request.kind = Collective::allgather;
         c.request.count = kCount / static_cast<std::size_t>(size);
       },
       {"communicator 'world': all ranks must call the same collectives in the same order; rank 0 "
        "calls allreduce, rank RANK calls allgather"}},
      {Collective::allreduce,
       [](Call& c, int) { c.request.kind = Collective::barrier; },
       {"rank RANK calls barrier"}},
      {Collective::allreduce,
       [](Call& c, int) { c.algorithm = "ring"; },
       {"allreduce on 'world': all ranks must use the same algorithm; rank 0 uses ",
        "rank RANK uses ring", "HPCOMM_TUNE"}},
      {Collective::broadcast,
       [](Call& c, int size) { c.request.root = size - 1; },
       {"broadcast on 'world': all ranks must pass the same root; rank 0 has 0, rank RANK has "}},
      {Collective::broadcast,
       [](Call& c, int) { c.request.dtype = DType::u32; },
       {"same dtype; rank 0 has float32, rank RANK has uint32"}},
      {Collective::allgather,
       [](Call& c, int) { c.request.count = 17; },
       {"same count; rank 0 has 1000, rank RANK has 17"}},
      {Collective::allgather,
       [](Call& c, int size) { c.request.counts = unequal[static_cast<std::size_t>(size)]; },
       {"same count; rank 0 has 1000, rank RANK has parts of unequal lengths"}},
      {Collective::reduce_scatter,
       [](Call& c, int) { c.request.op = ReduceOp::prod; },
       {"reduce_scatter on 'world'", "same op; rank 0 has sum, rank RANK has prod"}},
      {Collective::barrier,
       [](Call& c, int) {
         c.request.kind = Collective::allreduce;
         c.request.count = 1;
       },
       {"rank 0 calls barrier, rank RANK calls allreduce"}},
  };
  return all;
}

/// Buffers that any of the cases fits into.
struct Memory {
  explicit Memory(int size)
      : send(kCount * 8 * static_cast<std::size_t>(size) + 8192),
        recv(kCount * 8 * static_cast<std::size_t>(size) + 8192) {}
  /// Lengths as the request needs them.
  void fit(CollectiveRequest& request, int rank, int size) {
    const std::size_t width = size_bytes(request.dtype);
    const std::size_t whole = total_count(request, size) * width;
    const std::size_t part = request.counts.empty()
                                 ? request.count * width
                                 : request.counts[static_cast<std::size_t>(rank)] * width;
    request.send = {send.data(), request.kind == Collective::allgather ? part : whole};
    request.recv = {recv.data(), request.kind == Collective::reduce_scatter ? part : whole};
  }
  Guarded send;
  Guarded recv;
};

std::vector<RunOptions> all_media() {
  std::vector<RunOptions> media(3);
  media[1].world.shared_memory = false;
  media[2].world.ranks_per_node = 2;
  return media;
}

Call base_call(Collective kind, RankScope& scope) {
  Call call;
  call.request.kind = kind;
  call.request.dtype = DType::f32;
  call.request.count = kind == Collective::barrier ? 0 : kCount;
  if (kind == Collective::broadcast) call.request.root = 0;
  call.request.deadline = scope.patient();
  return call;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_disagreement_is_the_same_error_on_every_rank) {
  for (const RunOptions& options : all_media())
    for (const int size : {2, 3, 5})
      for (int odd = 1; odd < size; odd += 2) {
        std::vector<std::vector<std::string>> texts(cases().size());
        for (auto& of_case : texts) of_case.resize(static_cast<std::size_t>(size));
        const auto body = [&](RankScope& scope) {
          for (std::size_t i = 0; i < cases().size(); ++i) {
            const Case& test = cases()[i];
            Call mine = base_call(test.kind, scope);
            if (scope.rank == odd) test.change(mine, size);
            Memory memory(size);
            memory.fit(mine.request, scope.rank, size);
            texts[i][static_cast<std::size_t>(scope.rank)] =
                error_text(Errc::mismatch, [&] { call(scope, mine.request, mine.algorithm); });
            require(memory.send.is_untouched() && memory.recv.is_untouched(),
                    "a buffer was touched although the ranks disagree");
            require_usable(scope);
            require_usable(scope, "ring");
          }
        };
        HPCOMM_TEST_RUNS(run_ranks(size, body, options));
        for (std::size_t i = 0; i < cases().size(); ++i) {
          for (const std::string& text : texts[i]) BOOST_TEST(text == texts[i][0]);
          for (const std::string& fragment : cases()[i].fragments)
            BOOST_TEST(texts[i][0].find(with_rank(fragment, odd)) != std::string::npos,
                       texts[i][0] << " lacks " << with_rank(fragment, odd));
        }
      }
}

BOOST_AUTO_TEST_CASE(the_lowest_differing_rank_is_named) {
  for (const RunOptions& options : all_media()) {
    std::vector<std::string> texts(5);
    const auto body = [&](RankScope& scope) {
      Call mine = base_call(Collective::allreduce, scope);
      mine.request.count = scope.rank < 2 ? 10 : 20 + static_cast<std::size_t>(scope.rank);
      Memory memory(5);
      memory.fit(mine.request, scope.rank, 5);
      texts[static_cast<std::size_t>(scope.rank)] =
          error_text(Errc::mismatch, [&] { call(scope, mine.request); });
    };
    HPCOMM_TEST_RUNS(run_ranks(5, body, options));
    for (const std::string& text : texts)
      BOOST_TEST(text.find("rank 0 has 10, rank 2 has 22") != std::string::npos, text);
  }
}

BOOST_AUTO_TEST_CASE(counts_that_are_all_equal_agree_with_a_plain_count) {
  const std::vector<std::size_t> equal(3, kCount);
  HPCOMM_TEST_RUNS(run_ranks(3, [&](RankScope& scope) {
    Call mine = base_call(Collective::allgather, scope);
    if (scope.rank == 1) mine.request.counts = equal;
    Memory memory(3);
    memory.fit(mine.request, scope.rank, 3);
    call(scope, mine.request);
  }));
}

BOOST_AUTO_TEST_CASE(one_rank_with_arguments_of_no_use_ends_the_call_on_all) {
  const std::function<void(Call&)> faults[] = {
      [](Call& c) { c.algorithm = "no_such_algorithm"; },
      [](Call& c) { c.request.recv.nbytes -= 4; },
      [](Call& c) { c.request.send = slice(c.request.recv, 0, c.request.recv.nbytes); },
      [](Call& c) { c.request.send.data = nullptr; },
  };
  for (const RunOptions& options : all_media())
    for (std::size_t i = 0; i < std::size(faults); ++i) {
      const auto body = [&](RankScope& scope) {
        Call mine = base_call(Collective::allreduce, scope);
        Memory memory(3);
        memory.fit(mine.request, scope.rank, 3);
        if (scope.rank == 2) {
          faults[i](mine);
          if (i == 2) mine.request.send.data += 4;  // overlaps in part
          error_text(Errc::invalid_argument, [&] { call(scope, mine.request, mine.algorithm); });
        } else {
          const std::string text =
              error_text(Errc::mismatch, [&] { call(scope, mine.request, mine.algorithm); });
          require(text.find("rank 2 could not take part") != std::string::npos, text);
        }
        require(memory.recv.is_untouched(), "the receive buffer was touched");
        require_usable(scope);
      };
      HPCOMM_TEST_RUNS(run_ranks(3, body, options));
    }
}

BOOST_AUTO_TEST_CASE(what_no_rank_can_do_is_the_same_error_everywhere) {
  HPCOMM_TEST_RUNS(run_ranks(3, [](RankScope& scope) {
    Call mine = base_call(Collective::allreduce, scope);
    mine.request.dtype = DType::i32;
    mine.request.op = ReduceOp::avg;
    Memory memory(3);
    memory.fit(mine.request, scope.rank, 3);
    const std::string text = error_text(Errc::unsupported, [&] { call(scope, mine.request); });
    require(text.find("op 'avg' has no exact meaning for dtype int32") != std::string::npos &&
                text.find("take op 'sum'") != std::string::npos,
            text);
    require_usable(scope);

    mine = base_call(Collective::broadcast, scope);
    mine.request.root = 3;
    memory.fit(mine.request, scope.rank, 3);
    const std::string root = error_text(Errc::invalid_argument, [&] { call(scope, mine.request); });
    require(root.find("root must be a rank from 0 to 2") != std::string::npos, root);
    require_usable(scope);
  }));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
