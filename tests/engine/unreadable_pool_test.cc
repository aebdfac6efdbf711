// Engines with pools that transports cannot read directly give the same answers, bit for bit, with
// one KV group and with two.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/in_process_pair.h"
#include "tests/engine/tiny_engine.h"
#include "tests/engine/unreadable_view.h"

namespace baton {
namespace {

using Case = std::tuple<PairTransport, std::string>;

class UnreadablePool : public ::testing::TestWithParam<Case> {};

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  const auto& [transport, model] = info.param;
  const std::string medium = transport == PairTransport::kLoopback ? "Loopback" : "Tcp";
  return medium + (model == "q4_1" ? "OneGroup" : "TwoGroups");
}

INSTANTIATE_TEST_SUITE_P(Each, UnreadablePool,
                         ::testing::Combine(::testing::Values(PairTransport::kLoopback,
                                                              PairTransport::kTcp),
                                            ::testing::Values("q4_1", "window-q4_0")),
                         NameOf);

TEST_P(UnreadablePool, AnswersEqualThoseOfOneEngine) {
  const auto& [transport, model] = GetParam();
  EngineOptions options = TinyOptions();
  options.model = TinyModelFile(model);
  options.max_chunk_tokens = 24;
  const auto single = Engine::Create(options);
  ASSERT_TRUE(single.ok()) << single.status();

  std::vector<UnreadableView*> views;
  options.lend_pool = [&](std::byte* pool, const KvPoolLayout& layout) {
    auto view = std::make_unique<UnreadableView>(pool, layout);
    views.push_back(view.get());
    return view;
  };
  for (const int32_t steps : {1, 2}) {
    options.device = steps == 2 ? "cpu-async" : "cpu";
    options.steps_in_flight = steps;
    views.clear();
    const auto pair = InProcessPair::Create(options, transport);
    ASSERT_TRUE(pair.ok()) << pair.status();
    ASSERT_EQ(views.size(), 2u);
    for (int round = 0; round < 2; ++round) {  // the second round uses the caches
      std::vector<GenerateRequest> requests;
      std::vector<std::shared_ptr<WaitingSink>> sinks;
      for (uint64_t seed = 0; seed < 6; ++seed) {
        const auto tokens = static_cast<int32_t>(17 + seed * 23);
        requests.push_back(TinyRequest(tokens, 12, seed));
        sinks.push_back(std::make_shared<WaitingSink>());
        (*pair)->Generate(requests.back(), sinks.back());
      }
      for (size_t i = 0; i < requests.size(); ++i) {
        const SinkRecord one = Ask(**single, requests[i]);
        const SinkRecord two = sinks[i]->WaitForEnd();
        ASSERT_TRUE(one.finish.has_value()) << i;
        ASSERT_TRUE(two.finish.has_value()) << i << ": " << two.error.value_or(absl::OkStatus());
        EXPECT_EQ(two.tokens, one.tokens) << "request " << i << " of round " << round;
        EXPECT_EQ(two.finish->logits_hash, one.finish->logits_hash);
        if (round == 0) {
          EXPECT_GT(two.finish->ledger.kv_bytes, 0) << "the decode engine computed the prompt";
        }
      }
    }
    for (const UnreadableView* view : views) EXPECT_GT(view->copies(), 0);
    for (Engine* engine : {&(*pair)->prefill(), &(*pair)->decode()}) {
      // The sender gets the transfer's end later than the receiver.
      while (engine->Inspect().status.active_transfers > 0) std::this_thread::yield();
      EXPECT_EQ(engine->Inspect().status.cache.blocks.in_transfer, 0);
      EXPECT_EQ(engine->Inspect().status.conservation_error, "");
      EXPECT_GT(engine->Inspect().status.kv_bytes_through_host, 0);
    }
  }
}

// Another process cannot map this pool.
TEST(UnreadablePoolByName, SharedMemoryIsRefusedByName) {
  EngineOptions options = TinyOptions();
  options.lend_pool = [](std::byte* pool, const KvPoolLayout& layout) {
    return std::make_unique<UnreadableView>(pool, layout);
  };
  const absl::Status refused = InProcessPair::Create(options, PairTransport::kShm).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("no export"), std::string::npos) << refused;
}

}  // namespace
}  // namespace baton
