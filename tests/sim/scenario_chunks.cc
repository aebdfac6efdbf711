// Chunked prompts of a scenario: requests over a small library of documents, small chunk caches,
// and operators that clear them.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/sim/literal_answer.h"
#include "tests/sim/scenario.h"

namespace baton {
namespace {

constexpr int32_t kContextLength = 128;
constexpr int32_t kLongContextLength = 2048;
constexpr int32_t kPieceTokens = 256;  // the smallest size of pieces
constexpr int32_t kMostChunks = 4;
constexpr int32_t kSystemLengths[] = {0, 1, 4, 5, 8, 11};
constexpr int32_t kDocumentLengths[] = {1, 3, 4, 5, 7, 8, 12, 16};
constexpr int32_t kLongDocumentLengths[] = {255, 256, 257, 300, 513};

std::vector<TokenId> Tokens(uint64_t source, int32_t length) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<TokenId>(
        MixBits(0xC0DE + source * 4096 + static_cast<uint64_t>(i)) % kSimEndToken));
  }
  return tokens;
}

template <size_t N>
int32_t Choose(SimRandom& random, const int32_t (&values)[N]) {
  return values[random.Below(N)];
}

// What the chunked prompts of a scenario have in common. They use few documents, system parts and
// options, so that they hit each other's chunks at other places.
struct Library {
  bool is_long = false;
  std::vector<std::vector<TokenId>> systems;
  std::vector<std::vector<TokenId>> documents;
  std::vector<ChunkOptions> options;
};

ChunkOptions DrawOptions(SimRandom& random, bool repairs) {
  ChunkOptions options;
  if (random.OneIn(2)) options.positions = ChunkPositions::kSequential;
  if (random.OneIn(3)) options.scope = ChunkScope::kAlone;
  if (!repairs || random.OneIn(2)) return options;
  if (random.OneIn(2)) {
    options.repair = {.kind = ChunkRepair::Kind::kFirst,
                      .first_tokens = static_cast<int32_t>(random.Below(7))};
  } else {
    options.repair = {.kind = ChunkRepair::Kind::kShare,
                      .share_millionths = random.OneIn(6)
                                              ? ChunkRepair::kWhole
                                              : static_cast<int32_t>(random.Below(600'000))};
  }
  return options;
}

// `may_be_long`: some documents may be longer than a piece.
Library DrawLibrary(SimRandom& random, bool may_be_long) {
  Library library;
  library.is_long = random.OneIn(10) && may_be_long;
  for (int i = 0; i < 2; ++i) {  // one system part often is a prefix of the other
    const uint64_t source = random.OneIn(3) ? 2 : 1;
    library.systems.push_back(Tokens(source, Choose(random, kSystemLengths)));
  }
  const uint64_t documents = 2 + random.Below(4);
  for (uint64_t i = 0; i < documents; ++i) {
    const bool is_long = library.is_long && random.OneIn(2);
    const int32_t length =
        is_long ? Choose(random, kLongDocumentLengths) : Choose(random, kDocumentLengths);
    library.documents.push_back(Tokens(10 + i, length));
  }
  const bool repairs = random.OneIn(2);
  const uint64_t options = 1 + random.Below(3);
  for (uint64_t i = 0; i < options; ++i) library.options.push_back(DrawOptions(random, repairs));
  return library;
}

ChunkedPrompt DrawPrompt(SimRandom& random, const Library& library) {
  ChunkedPrompt prompt;
  prompt.options = library.options[random.Below(library.options.size())];
  prompt.system = library.systems[random.OneIn(4) ? 1 : 0];
  std::vector<std::vector<TokenId>> shuffled = library.documents;
  const int64_t chunks = random.OneIn(12) ? 0 : random.Between(1, kMostChunks);
  for (int64_t i = 0; i < chunks && !shuffled.empty(); ++i) {
    const size_t chosen = random.Below(shuffled.size());
    prompt.chunks.push_back(shuffled[chosen]);
    if (!random.OneIn(8)) shuffled.erase(shuffled.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  if (prompt.system.empty() && prompt.chunks.empty()) prompt.chunks = {library.documents.front()};
  prompt.question = Tokens(100 + random.Below(3), static_cast<int32_t>(random.Between(1, 8)));
  return prompt;
}

// Returns the next turn of a conversation: its question has the question and the answer of the
// turn before.
ChunkedPrompt NextTurn(SimRandom& random, const ScenarioRequest& before) {
  ChunkedPrompt prompt = *before.request.chunked;
  const SimAnswer answer =
      LiteralAnswer(SimModel(), prompt, before.request.sampling, kLongContextLength);
  prompt.question.insert(prompt.question.end(), answer.tokens.begin(), answer.tokens.end());
  std::erase(prompt.question, kSimEndToken);
  const std::vector<TokenId> more =
      Tokens(200 + random.Below(2), static_cast<int32_t>(random.Between(1, 3)));
  prompt.question.insert(prompt.question.end(), more.begin(), more.end());
  return prompt;
}

// Makes an ordinary request with tokens of the prompt. It must not find KV that parts or the
// question have left.
ScenarioRequest WithoutParts(SimRandom& random, const ChunkedPrompt& prompt,
                             ScenarioRequest request) {
  std::vector<TokenId> tokens = random.OneIn(2) ? FlatTokens(prompt) : prompt.question;
  tokens.resize(std::min<size_t>(tokens.size(), kLongestPrompt));
  request.request.prompt = std::move(tokens);
  return request;
}

bool Fits(const ChunkedPrompt& prompt, int32_t context_length) {
  return PositionsOf(prompt).answer + kLongestAnswer <= context_length;
}

void DrawChunkedRequests(SimRandom& random, const Library& library, int32_t context_length,
                         Scenario& scenario) {
  const uint64_t count = library.is_long ? 2 : 2 + random.Below(5);
  const int64_t span_us = random.OneIn(4) ? 1000 : random.OneIn(2) ? 1000 * kMs : 60 * kMs;
  const bool choices = random.OneIn(3);
  std::vector<ScenarioRequest> added;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t number = scenario.requests.size() + added.size() + 1;
    ScenarioRequest request = DrawRequest(random, number, 1, span_us);
    if (random.OneIn(3)) request.request.placement = Placement::kLocal;
    ChunkedPrompt prompt = DrawPrompt(random, library);
    if (!added.empty() && random.OneIn(4)) {
      const ScenarioRequest& before = added[random.Below(added.size())];
      ChunkedPrompt next = NextTurn(random, before);
      if (Fits(next, context_length)) {
        prompt = std::move(next);
        request.request.cache_namespace = before.request.cache_namespace;
        request.start_us = before.start_us + random.Between(0, 40 * kMs);
      }
    }
    if (choices) request.request.n = static_cast<int32_t>(random.Between(1, 3));
    if (random.OneIn(3)) request.request.cache_namespace = CacheNamespace(2);
    if (random.OneIn(6)) {
      scenario.requests.push_back(WithoutParts(random, prompt, std::move(request)));
      continue;
    }
    request.request.prompt = FlatTokens(prompt);
    request.request.chunked = std::move(prompt);
    added.push_back(std::move(request));
  }
  for (ScenarioRequest& request : added) scenario.requests.push_back(std::move(request));
}

int32_t BlocksOf(size_t tokens, int32_t block_size) {
  return (static_cast<int32_t>(tokens) + block_size - 1) / block_size;
}

// Returns a pool size in which the request always fits alone, with a repair and a fork.
int32_t BlocksFor(const ChunkedPrompt& prompt, int32_t block_size) {
  int32_t blocks = BlocksOf(prompt.system.size(), block_size);
  for (const std::vector<TokenId>& chunk : prompt.chunks) {
    blocks += BlocksOf(chunk.size(), block_size);
    if (!prompt.options.repair.RepairsNothing()) blocks += BlocksOf(chunk.size(), block_size);
  }
  return blocks + BlocksOf(prompt.question.size() + kLongestAnswer, block_size) + 2;
}

// Enlarges the pools, so that all requests fit. What a pool had beyond the smallest size, it keeps.
void MakeRoom(Scenario& scenario) {
  for (size_t i = 0; i < scenario.workers.size(); ++i) {
    SimEngineOptions& engine = scenario.workers[i].engine;
    int32_t needed = 0;
    for (const ScenarioRequest& request : scenario.requests) {
      if (!request.request.chunked) continue;
      needed = std::max(needed, BlocksFor(*request.request.chunked, engine.block_size));
    }
    // Parts take contiguous runs of blocks, which leave gaps.
    if (!engine.paged) needed *= 3;
    const int32_t more = std::max(0, needed - LeastBlocks(engine));
    engine.kv_blocks += more;
    if (engine.max_blocks > 0) engine.max_blocks += more;
    for (ScenarioResize& resize : scenario.resizes) {
      if (resize.node == kFirstWorkerNode + static_cast<int32_t>(i)) resize.blocks += more;
    }
  }
}

void DrawEngines(SimRandom& random, const Library& library, int32_t context_length,
                 Scenario& scenario) {
  static constexpr double kShares[] = {0.0, 0.1, 0.2, 0.4, 0.6, 1.0};
  static constexpr int32_t kEntries[] = {1, 2, 3, 500, 500};
  const bool has_old = random.OneIn(8);
  const bool is_tight = random.OneIn(2);
  const bool sleeps = random.OneIn(2);
  const bool mixed_pieces = random.OneIn(3);
  for (SimWorker::Options& worker : scenario.workers) {
    SimEngineOptions& engine = worker.engine;
    engine.context_length = context_length;
    engine.chunk_slots = library.is_long ? 2 * kLongContextLength : 4 * kContextLength;
    engine.chunk_cache_share = kShares[random.Below(std::size(kShares))];
    engine.chunk_entries = kEntries[random.Below(std::size(kEntries))];
    engine.prompt_chunk_tokens = mixed_pieces && random.OneIn(2) ? 2 * kPieceTokens : kPieceTokens;
    if (sleeps) {
      const int64_t block_bytes = int64_t{engine.block_size} * kSimLayers * 2 * sizeof(SimRow);
      engine.chunk_host_bytes = random.Between(1, 30) * (block_bytes + 256);
      engine.chunk_sleep_after_us = random.Between(1, 30) * kMs;
      engine.chunk_sleep_uses = static_cast<int32_t>(random.Between(1, 3));
      engine.chunk_compress = random.OneIn(2);
    }
    if (is_tight) {
      engine.shifted_queries = static_cast<int32_t>(random.Between(kMostChunks, 20));
      engine.repair_runs = static_cast<int32_t>(random.Between(kMostChunks + 1, 30));
    }
    if (library.is_long) {
      engine.token_budget = 160;
      engine.max_chunk_tokens = static_cast<int32_t>(random.Between(40, 160));
      engine.step_us = std::min<int64_t>(engine.step_us, 200);
    }
    worker.knows_chunks = !(has_old && random.OneIn(3));
  }
}

void DrawClears(SimRandom& random, Scenario& scenario) {
  if (!random.OneIn(3)) return;
  for (int64_t count = random.Between(1, 4); count > 0; --count) {
    ScenarioClear clear{
        .at_us = kFirstRequestUs + random.Between(0, 60 * kMs),
        .node = kFirstWorkerNode + static_cast<int32_t>(random.Below(scenario.workers.size())),
        .prefixes = random.OneIn(4)};
    if (random.OneIn(3)) clear.only = CacheNamespace(random.OneIn(2) ? 2 : 1);
    scenario.clears.push_back(clear);
  }
}

}  // namespace

bool TakesPrompt(const SimWorker::Options& worker, const ScenarioRequest& request) {
  return !request.request.chunked || (worker.knows_chunks && worker.engine.model.window == 0);
}

bool Takes(const Scenario& scenario, const ScenarioRequest& request) {
  if (!request.request.chunked) return true;
  int takers = 0;
  int decoders = 0;
  int prefillers = 0;
  for (const SimWorker::Options& worker : scenario.workers) {
    if (!TakesPrompt(worker, request)) continue;
    ++takers;
    decoders += worker.role != WorkerRole::kPrefill ? 1 : 0;
    prefillers += worker.role != WorkerRole::kDecode ? 1 : 0;
  }
  if (request.request.placement != Placement::kRemote) return decoders > 0;
  const bool repairs = !request.request.chunked->options.repair.RepairsNothing();
  return !repairs && decoders > 0 && prefillers > 0 && takers > 1;
}

void DrawChunks(uint64_t seed, Scenario& scenario) {
  scenario.has_chunks = true;
  SimRandom random(seed, "chunks");
  // A model with windows refuses the prompts, and its pools are made for short steps.
  const bool has_window = scenario.workers.front().engine.model.window > 0;
  const Library library = DrawLibrary(random, /*may_be_long=*/!has_window);
  const int32_t context_length = library.is_long ? kLongContextLength : kContextLength;
  DrawEngines(random, library, context_length, scenario);
  DrawChunkedRequests(random, library, context_length, scenario);
  MakeRoom(scenario);
  DrawClears(random, scenario);
}

void DivideSmallPrompts(Scenario& scenario) {
  scenario.has_chunks = true;
  for (SimWorker::Options& worker : scenario.workers) {
    worker.engine.context_length = kContextLength;
    worker.engine.chunk_slots = 2 * kContextLength;
  }
  const std::vector<TokenId> shared = Tokens(10, 6);
  for (ScenarioRequest& request : scenario.requests) {
    const uint64_t number = request.request.number;
    ChunkedPrompt prompt;
    prompt.options.positions = ChunkPositions::kSequential;
    prompt.system = Tokens(1, 5);
    prompt.chunks = {shared, Tokens(10 + number, 5)};
    if (number % 2 == 0) std::swap(prompt.chunks[0], prompt.chunks[1]);
    prompt.question = Tokens(100 + number, 3);
    request.request.prompt = FlatTokens(prompt);
    request.request.chunked = std::move(prompt);
  }
}

std::string DescribeChunks(const Scenario& scenario) {
  std::string text;
  if (!scenario.has_chunks) return text;
  for (const SimWorker::Options& worker : scenario.workers) {
    const SimEngineOptions& engine = worker.engine;
    absl::StrAppend(&text, "  ", worker.id, worker.knows_chunks ? "" : " does not know chunks",
                    ": chunk cache of ", engine.chunk_cache_share, " of the pool and ",
                    engine.chunk_entries, " entries, pieces of ", engine.prompt_chunk_tokens,
                    " tokens, ", engine.shifted_queries, " shifted queries and ",
                    engine.repair_runs, " runs of repairs in a step, ", engine.chunk_host_bytes,
                    " bytes of host memory, asleep after ", engine.chunk_sleep_after_us,
                    " us and fewer than ", engine.chunk_sleep_uses, " uses, ",
                    RulesOf(engine.cache_kind).shares ? "a prefix cache" : "no prefix cache",
                    engine.paged ? "" : ", contiguous", "\n");
  }
  for (const ScenarioRequest& request : scenario.requests) {
    if (!request.request.chunked) continue;
    const ChunkedPrompt& prompt = *request.request.chunked;
    std::vector<std::string> chunks;
    for (const std::vector<TokenId>& chunk : prompt.chunks) {
      chunks.push_back(absl::StrCat(chunk.size(), " from token ", chunk.front()));
    }
    absl::StrAppend(&text, "  request ", request.request.number, " has ", prompt.system.size(),
                    " system tokens, chunks of ", absl::StrJoin(chunks, ", "), "; ",
                    prompt.question.size(), " tokens of question; ",
                    std::string(ChunkPositionsName(prompt.options.positions)), ", ",
                    std::string(ChunkScopeName(prompt.options.scope)), ", repair ",
                    ChunkRepairName(prompt.options.repair), ", namespace ",
                    request.request.cache_namespace.low(), "\n");
  }
  for (const ScenarioClear& clear : scenario.clears) {
    absl::StrAppend(&text, "  node ", clear.node, " clears ",
                    clear.prefixes ? "chunks and prefixes" : "chunks",
                    clear.only ? absl::StrCat(" of namespace ", clear.only->low()) : "", " at ",
                    clear.at_us, " us\n");
  }
  return text;
}

}  // namespace baton
