// The answers that live requests are drawing.
//
// A request asks for one answer or for several, its choices. They share the computation of the
// prompt and then are sequences of their own.
//
// Invariants:
//  1. A choice's handle is its request's first handle plus its index. It names the choice's
//     sequence too.
//  2. While choices are unforked, the first live one alone has a sequence, which computes the
//     prompt for all.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/generation.h"
#include "engine/request.h"

namespace baton {

// What the choices of a request share.
struct ChoicesRequest {
  RequestHandle first = 0;  // the handle of choice 0, also when that one has ended
  int32_t n = 1;
  std::string name;  // the caller's
  std::shared_ptr<RequestSink> sink;
  int64_t arrival_us = 0;
  int64_t deadline_us = 0;  // 0: none
};

struct Choice {
  std::shared_ptr<const ChoicesRequest> request;
  int32_t index = 0;
  std::unique_ptr<Generation> generation;
  bool unforked = false;         // it has no sequence of its own yet, or computes the prompt
  std::vector<TokenId> tail;     // of an unforked one: generated elsewhere
  int32_t prompt_tokens = 0;     // to prefill: with what was generated elsewhere
  int32_t resumed_tokens = 0;    // of them, generated elsewhere
  uint64_t transfer_id = 0;      // of the KV it waits for; 0: none
  int64_t prefill_begin_us = 0;  // when it left the queue for the first time; 0: not yet

  RequestHandle handle() const { return request->first + index; }
  SequenceId id() const { return SequenceOf(handle()); }
  RequestSink& sink() const { return *request->sink; }
};

class LiveChoices {
 public:
  void Add(std::unique_ptr<Choice> choice);
  // REQUIRES: live.
  void Remove(RequestHandle handle) { choices_.erase(handle); }
  // Null: not live.
  Choice* Find(RequestHandle handle) const;
  // REQUIRES: live.
  Choice& At(RequestHandle handle) const { return *choices_.at(handle); }
  // The live ones, in order, of the request that `first` names.
  std::vector<Choice*> Of(RequestHandle first) const;
  struct Deadlines {
    std::vector<RequestHandle> late;  // choices whose deadline has passed, rising
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
