// libFuzzer target for messages about prompt chunks, as a hostile client, router or worker sends
// them. The input's first byte selects the message, the rest are its bytes. Each message goes
// through the production readers. They must refuse it, or give values that keep their promises:
//
//   generate  v1.GenerateRequest of a client: parts, options, separators
//   decode    v1.DecodeRequest: a chunked prompt, its layout and the rows of its repair
//   prefill   v1.PrefillRequest: also the tickets of its parts
//   pull      v1.PullPrefixRequest, and its chunks
//   send      v1.SendPrefixRequest: also the tickets of its parts
//   manifest  a hand-off's manifest
//   support   v1.PromptChunkSupport of a heartbeat, and the router's layout with its piece size
//   events    KV events that name the parts of a prompt, and the router's look-up of that prompt
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/v1/inference.pb.h"
#include "baton/v1/worker.pb.h"
#include "cache/chunk_layout.h"
#include "cache/index/kv_event.h"
#include "common/check.h"
#include "engine/chunk_repair.h"
#include "engine/handoff_manifest.h"
#include "engine/model_limits.h"
#include "engine/part_tickets.h"
#include "router/kv_event_intake.h"
#include "router/prompt_lookup.h"
#include "rpc/chunked_prompt_wire.h"
#include "rpc/prompt_chunks_wire.h"
#include "tests/fuzz/seed_corpus.h"
#include "text/byte_alphabet.h"
#include "text/prompt_encoder.h"
#include "worker_rpc/request_conversion.h"

namespace baton {
namespace {

enum Message : uint8_t {
  kGenerate,
  kDecode,
  kPrefill,
  kPull,
  kSend,
  kManifest,
  kSupport,
  kEvents,
  kMessages
};

constexpr ModelLimits kLimits{.vocabulary = 256, .context_length = 2048};
constexpr int32_t kPieceTokens = 256;
constexpr int32_t kBlockSizes[] = {1, 16, 128};
constexpr CacheNamespace kNamespace{1};

const Tokenizer& ByteTokenizer() {
  static const std::unique_ptr<const Tokenizer> tokenizer = [] {
    TokenizerSpec spec;
    spec.model = "gpt2";
    spec.pre = "gpt-2";
    for (int i = 0; i < 256; ++i) spec.tokens.push_back(ByteToAlphabet(static_cast<uint8_t>(i)));
    spec.tokens.push_back("<|end|>");
    spec.token_types.assign(256, 1);
    spec.token_types.push_back(3);
    spec.eos = 256;
    return *Tokenizer::Create(spec);
  }();
  return *tokenizer;
}

// ---- promises -----------------------------------------------------------------------------------

void CheckRepair(const ChunkLayout& layout, int32_t block_size) {
  const RepairRows rows = CandidateRows(layout, block_size);
  CHECK_EQ(rows.tokens.size(), rows.rows.size());
  for (int32_t i = 0; i < rows.size(); ++i) {
    CHECK_LT(rows.rows[i].slot, layout.SlotsOfFrame(block_size));
    if (i > 0) CHECK_GT(rows.rows[i].slot, rows.rows[i - 1].slot);
  }
  const int32_t repaired = RowsToRepair(layout.options.repair, rows.size());
  CHECK(repaired >= 0 && repaired <= rows.size()) << repaired;
  CHECK_LE(BlocksOfRepair(layout, block_size), repaired);
}

void CheckLayout(const ChunkedPrompt& prompt, const ChunkLayout& layout) {
  std::set<std::pair<uint64_t, uint64_t>> keys;
  for (size_t i = 0; i < layout.parts.size(); ++i) {
    const ChunkLayout::Part& part = layout.parts[i];
    CHECK(!part.tokens.empty() && part.position >= 0);
    CHECK(keys.emplace(part.key.hash.low, part.key.hash.high).second);
    for (const int32_t seen : part.sees) CHECK(seen >= 0 && seen < static_cast<int32_t>(i));
  }
  CHECK_EQ(layout.chunks.size(), prompt.chunks.size());
  int64_t tokens = static_cast<int64_t>(prompt.question.size());
  for (const ChunkLayout::Place& place : layout.places) {
    const ChunkLayout::Part& part = layout.parts.at(static_cast<size_t>(place.part));
    tokens += static_cast<int64_t>(part.tokens.size());
    CHECK_LT(part.position + place.shift, kLimits.context_length);
  }
  CHECK_EQ(tokens, TokensOf(prompt));
  CHECK(layout.derived_namespace != layout.cache_namespace);
  CHECK_LT(layout.question_position, kLimits.context_length);
  for (const int32_t block_size : kBlockSizes) CheckRepair(layout, block_size);
}

bool Accepts(const ChunkedPrompt& prompt) {
  return CheckChunkedPrompt(prompt, kLimits.context_length, kLimits.vocabulary).ok();
}

void CheckPrompt(const ChunkedPrompt& prompt) {
  const absl::StatusOr<ChunkedPrompt> again =
      ChunkedPromptFromWire(ChunkedPromptToWire(prompt), /*prompt_token_ids=*/0);
  CHECK(again.ok() && *again == prompt) << again.status();
  if (!Accepts(prompt)) return;
  CheckLayout(prompt, MakeChunkLayout(prompt, kNamespace, kPieceTokens));
}

void CheckTickets(const TransferTicket& ticket, const ChunkLayout& layout, int32_t block_size) {
  if (!CheckPartTickets(ticket, layout, block_size).ok()) return;
  if (ticket.block_size != 0) block_size = ticket.block_size;  // else the sender's
  for (const PartTicket& named : ticket.parts) {
    const auto tokens =
        static_cast<int64_t>(layout.parts.at(static_cast<size_t>(named.part)).tokens.size());
    const int64_t first = int64_t{named.first_block} * block_size;
    const int64_t end = first + int64_t{named.block_count} * block_size;
    CHECK(first >= 0 && first < tokens && end >= tokens && end - block_size < tokens)
        << "part of " << tokens << " tokens: [" << first << ", " << end << ")";
  }
}

// The ticket of a prompt that the receiver divides into pieces of its own size.
void CheckTickets(const TransferTicket& ticket, const ChunkedPrompt& prompt) {
  if (!CheckPieceTokens(ticket.piece_tokens).ok()) return;
  const ChunkLayout layout = MakeChunkLayout(prompt, kNamespace, ticket.piece_tokens);
  for (const int32_t block_size : kBlockSizes) CheckTickets(ticket, layout, block_size);
}

// ---- messages -----------------------------------------------------------------------------------

void Generate(const std::string& bytes) {
  v1::GenerateRequest wire;
  if (!wire.ParseFromString(bytes)) return;
  const PartSizes sizes = PartSizesOf(wire);
  CHECK(sizes.chunks >= 0 && sizes.bytes >= 0 && sizes.token_ids >= 0);
  const absl::StatusOr<ChunkOptions> options = ChunkOptionsFromWire(wire);
  if (!options.ok()) return;
  const PromptEncoder encoder(&ByteTokenizer(), "");
  if (wire.has_parts()) {
    const ChunkedText parts = PartsFromWire(wire.parts());
    CHECK_EQ(PartsToWire(parts).chunks_size(), wire.parts().chunks_size());
    const absl::StatusOr<EncodedPrompt> encoded = encoder.EncodeParts(parts, *options);
    if (encoded.ok() && encoded->chunked) CheckPrompt(*encoded->chunked);
  }
  const ChunkForm form{.separator = wire.chunk_separator(), .options = *options};
  const absl::StatusOr<EncodedPrompt> encoded = encoder.EncodePrompt(wire.prompt(), form);
  if (encoded.ok() && encoded->chunked) CheckPrompt(*encoded->chunked);
}

void Decode(const std::string& bytes) {
  v1::DecodeRequest wire;
  if (!wire.ParseFromString(bytes) || !CheckSize(wire, kLimits.context_length).ok()) return;
  const absl::StatusOr<GenerateRequest> request = GenerateRequestFromWire(std::move(wire), {});
  if (request.ok() && request->chunked) CheckPrompt(*request->chunked);
}

void Prefill(const std::string& bytes) {
  v1::PrefillRequest wire;
  if (!wire.ParseFromString(bytes) || !CheckSize(wire, kLimits.context_length).ok()) return;
  const absl::StatusOr<PrefillRequest> request = PrefillRequestFromWire(std::move(wire), {});
  if (!request.ok()) return;
  const absl::StatusOr<TransferTicket> again = TicketFromWire(TicketToWire(request->ticket));
  CHECK(again.ok() && again->parts == request->ticket.parts);
  if (!request->chunked) return;
  CheckPrompt(*request->chunked);
  if (Accepts(*request->chunked)) CheckTickets(request->ticket, *request->chunked);
}

void Pull(const std::string& bytes) {
  v1::PullPrefixRequest wire;
  if (!wire.ParseFromString(bytes)) return;
  const absl::StatusOr<PullRequest> request = PullRequestFromWire(wire);
  if (!request.ok() || !request->chunked) return;
  if (!kLimits.CheckChunksToPull(*request->chunked).ok()) return;
  const ChunkLayout layout = MakeChunkLayout(*request->chunked, kNamespace, kPieceTokens);
  for (const int32_t block_size : kBlockSizes) CHECK_GE(layout.BlocksOfParts(block_size), 0);
}

void Send(const std::string& bytes) {
  v1::SendPrefixRequest wire;
  if (!wire.ParseFromString(bytes)) return;
  const absl::StatusOr<SendPrefixRequest> request = SendPrefixRequestFromWire(wire);
  if (!request.ok() || !request->chunked) return;
  if (!kLimits.CheckChunksToPull(*request->chunked).ok()) return;
  CheckTickets(request->ticket, *request->chunked);
}

void Manifest(const std::string& bytes) {
  const absl::StatusOr<HandoffManifest> manifest = DecodeManifest(bytes, kLimits.vocabulary);
  if (!manifest.ok()) return;
  CHECK(!manifest->drawn.empty());
  const std::string again = EncodeManifest(*manifest);
  CHECK(again == bytes) << again.size() << " bytes of " << bytes.size();
}

// A prompt whose documents end inside pieces and at their ends.
ChunkedPrompt ExamplePrompt() {
  ChunkedPrompt prompt;
  prompt.options = {.positions = ChunkPositions::kSequential,
                    .scope = ChunkScope::kAlone,
                    .repair = {.kind = ChunkRepair::Kind::kFirst, .first_tokens = 2}};
  prompt.system = std::vector<TokenId>(20, 1);
  prompt.chunks = {std::vector<TokenId>(300, 2), {3, 4}, std::vector<TokenId>(512, 5)};
  prompt.question = {6, 7, 8};
  return prompt;
}

void Support(const std::string& bytes) {
  v1::PromptChunkSupport wire;
  if (!wire.ParseFromString(bytes)) return;
  const PromptChunkSupport support = ChunkSupportFromWire(wire);
  CHECK_LE(support.refusal.size(), 256u);
  const std::vector<int32_t> sizes = {support.piece_tokens};
  CHECK(CheckPieceTokens(UsualPieceTokens(sizes)).ok());
  const ChunkedRequest request(ExamplePrompt(), kNamespace, support.piece_tokens);
  CHECK_GE(request.parts().size(), 4u);
}

void Events(const std::string& bytes) {
  constexpr WorkerNumber kWorker{1};
  constexpr Epoch kEpoch{1};
  FleetIndex index({.max_units = 1 << 10, .key_seeds = {}});
  index.Add(kWorker, kEpoch, /*now_us=*/0);
  KvEventIntake intake(&index, kWorker);
  intake.Take({.epoch = kEpoch, .sequence = 1, .events = {}});  // the stream begins
  intake.Take({.epoch = kEpoch, .sequence = 1, .events = bytes, .part = 0, .parts = 0});
  const ChunkedRequest request(ExamplePrompt(), kNamespace, kPieceTokens);
  const std::vector<Hash128> question;
  const PromptLookup lookup(index, question, &request);
  CHECK(lookup.chunks() != nullptr);
  const int64_t held = lookup.chunks()->TokensOf(kWorker);
  CHECK(held >= 0 && held <= TokensOf(request.prompt())) << held;
}

// ---- seeds --------------------------------------------------------------------------------------

TransferTicket ExampleTicket() {
  return {.transfer_id = 7,
          .receiver_epoch = Epoch(8),
          .address = "tcp:a:1",
          .first_block = 0,
          .block_count = 1,
          .block_size = 16,
          .timeout_ms = 100,
          .parts = {{.part = 0, .transfer_id = 9, .first_block = 1, .block_count = 1},
                    {.part = 2, .transfer_id = 10, .first_block = 0, .block_count = 3}},
          .piece_tokens = kPieceTokens};
}

std::string ExampleManifest() {
  HandoffManifest manifest;
  manifest.drawn = {
      {.token = 3, .detail = {.logprob = -1, .top = {{.token = 4}}}, .logits_hash = 5}};
  manifest.prefill.computed_tokens = 6;
  manifest.prefill.chunk = {.chunks = 3, .hits = 2, .compute_us = 9};
  manifest.chunked = true;
  return EncodeManifest(manifest);
}

std::string ExampleEvents() {
  const ChunkedRequest request(ExamplePrompt(), kNamespace, kPieceTokens);
  KvEvent stored;
  stored.kind = KvEvent::Kind::kStored;
  for (const ChunkedRequest::Part& part : request.parts()) stored.hashes.push_back(part.key);
  KvEvent removed;
  removed.kind = KvEvent::Kind::kRemoved;
  removed.hashes = {stored.hashes.front()};
  const std::vector<KvEvent> events = {stored, removed};
  return EncodeKvEvents(events);
}

std::vector<FuzzSeed> Seeds() {
  v1::GenerateRequest parts;
  parts.mutable_parts()->mutable_system()->set_text("S");
  parts.mutable_parts()->add_chunks()->set_text("A");
  parts.mutable_parts()->add_chunks()->mutable_token_ids()->add_ids(7);
  parts.mutable_parts()->mutable_question()->set_text("Q");
  parts.set_chunk_repair("share:0.5");
  v1::GenerateRequest text;
  text.set_prompt("S##A##B##Q");
  text.set_chunk_separator("##");
  text.set_chunk_scope("alone");
  v1::DecodeRequest decode;
  *decode.mutable_chunked() = ChunkedPromptToWire(ExamplePrompt());
  decode.mutable_chunked()->set_chunk_repair("share:0.15");
  v1::PrefillRequest prefill;
  *prefill.mutable_chunked() = decode.chunked();
  *prefill.mutable_ticket() = TicketToWire(ExampleTicket());
  v1::PrefillRequest no_block_size = prefill;
  no_block_size.mutable_ticket()->clear_block_size();
  v1::PullPrefixRequest pull;
  *pull.mutable_chunked() = decode.chunked();
  pull.mutable_chunked()->clear_question();
  v1::SendPrefixRequest send;
  *send.mutable_chunked() = pull.chunked();
  *send.mutable_ticket()->mutable_ticket() = prefill.ticket();
  const v1::PromptChunkSupport support =
      ChunkSupportToWire({.piece_tokens = kPieceTokens, .refusal = "windows", .hands_over = true});
  const auto seed = [](std::string name, Message message, const std::string& bytes) {
    return FuzzSeed{std::move(name), static_cast<char>(message) + bytes};
  };
  return {seed("parts", kGenerate, parts.SerializeAsString()),
          seed("separator", kGenerate, text.SerializeAsString()),
          seed("decode", kDecode, decode.SerializeAsString()),
          seed("prefill", kPrefill, prefill.SerializeAsString()),
          seed("no_block_size", kPrefill, no_block_size.SerializeAsString()),
          seed("pull", kPull, pull.SerializeAsString()),
          seed("send", kSend, send.SerializeAsString()),
          seed("manifest", kManifest, ExampleManifest()),
          seed("support", kSupport, support.SerializeAsString()),
          seed("events", kEvents, ExampleEvents())};
}

void Read(uint8_t message, const std::string& bytes) {
  switch (message % kMessages) {
    case kGenerate:
      return Generate(bytes);
    case kDecode:
      return Decode(bytes);
    case kPrefill:
      return Prefill(bytes);
    case kPull:
      return Pull(bytes);
    case kSend:
      return Send(bytes);
    case kManifest:
      return Manifest(bytes);
    case kSupport:
      return Support(bytes);
    default:
      return Events(bytes);
  }
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  baton::WriteSeeds(*argc, *argv, baton::Seeds());
  google::protobuf::SetLogHandler(nullptr);  // it reports each text that is no UTF-8
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  baton::Read(data[0], std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
