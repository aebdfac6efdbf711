// Table of the answers ("choices") that live requests are generating.
//
// A request asks for one or several choices. They share the computation of the prompt and then
// become separate sequences.
//
// Invariants:
//  1. A choice's handle is its request's first handle plus its index. The choice's sequence has the
//     same number.
//  2. While choices are unforked, only the first live one has a sequence. That sequence computes
//     the prompt for all.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/generation.h"
#include "engine/handoff_receives.h"
#include "engine/request.h"

namespace baton {

// State that all choices of a request share.
struct ChoicesRequest {
  RequestHandle first = 0;  // handle of choice 0, even if choice 0 has ended
  int32_t n = 1;
  std::string name;  // given by the caller
  std::shared_ptr<RequestSink> sink;
  int64_t arrival_us = 0;
  int64_t deadline_us = 0;  // 0: none
};

struct Choice {
  std::shared_ptr<const ChoicesRequest> request;
  int32_t index = 0;
  std::unique_ptr<Generation> generation;
  bool unforked = false;      // it has no sequence yet, or computes the shared prompt
  std::vector<TokenId> tail;  // tokens of an unforked choice that another worker generated
  int32_t prompt_tokens = 0;  // tokens to prefill; includes resumed_tokens once forked
  // A chunked prompt (prompt_parts.h): tokens of its parts, and the position of the sequence's slot
  // 0.
  int32_t part_tokens = 0;
  int32_t first_position = 0;
  bool counts_parts = false;   // its ledger gets the costs of the parts
  int32_t resumed_tokens = 0;  // number of tokens that another worker generated
  uint64_t transfer_id = 0;    // transfer that it waits for; 0: none
  // The result of the question's transfer, while parts of a chunked prompt are missing.
  std::optional<ReceivedHandoff> received;
  int64_t prefill_begin_us = 0;  // when it first left the queue; 0: not yet

  RequestHandle handle() const { return request->first + index; }
  SequenceId id() const { return SequenceOf(handle()); }
  RequestSink& sink() const { return *request->sink; }
};

class LiveChoices {
 public:
  void Add(std::unique_ptr<Choice> choice);
  // REQUIRES: the choice is live.
  void Remove(RequestHandle handle) { choices_.erase(handle); }
  // Returns null if the choice is not live.
  Choice* Find(RequestHandle handle) const;
  // REQUIRES: the choice is live.
  Choice& At(RequestHandle handle) const { return *choices_.at(handle); }
  // Returns the live choices of the request with first handle `first`, in order.
  std::vector<Choice*> Of(RequestHandle first) const;
  struct Deadlines {
    std::vector<RequestHandle> late;  // choices past their deadline, in rising order
    std::optional<int64_t> next_us;   // the earliest of the others
  };
  Deadlines CheckDeadlines(int64_t now_us) const;
  // Returns the handles of all live choices, in rising order.
  std::vector<RequestHandle> Handles() const;
  bool empty() const { return choices_.empty(); }

 private:
  absl::flat_hash_map<RequestHandle, std::unique_ptr<Choice>> choices_;
};

}  // namespace baton
