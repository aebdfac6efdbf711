// What the scheduler asks about the parts of chunked prompts. The engine implements it.
//
// A chunked prompt is one *main* sequence (question and answer) and parts (system part, chunks).
// The scheduler queues the main sequence only. While it waits, it refers to nothing. So no queued
// request keeps blocks that another one needs.
//
// Admission is all or nothing. The scheduler takes the blocks of the main sequence and of all its
// missing parts at once. From then on the request never waits for memory to compute its prompt. The
// main sequence stays in kWaitingForKv until the engine calls Scheduler::PartsReady. A preempted
// main sequence drops its frame, and is admitted in the same way again.
//
// A main sequence whose KV comes from a peer (Scheduler::AddWaitingForKv) is admitted at once, with
// its missing parts. Each of these waits for KV of its own, until Scheduler::PartArrived. A part
// that only arrives in part is computed like others. The engine calls Scheduler::KvArrived when the
// question's KV has arrived and all parts are committed.
//
// A part that several requests wait for is computed once. The first of them creates it. It belongs
// to the source from then on: it goes on if that request ends, until the source finishes it.
//
// Life of a part in the scheduler: created by Admit, runs (it takes no place among the running
// sequences, and is never preempted), is done when all its tokens are committed, and keeps its
// blocks until Scheduler::Finish. It never samples a token. A part that shares its prefix inserts
// its full blocks as they are committed, up to the first one that the prefix tree has already.
// Finish inserts nothing: the chunk cache may have the rest by then.
//
// A repair (PartSpec::repair_blocks) is a part that computes chosen tokens of a request's chunks
// again, into blocks of its own. It belongs to one request. Its rows are known at the latest when
// all other parts of the request are done (Scheduler::BeginRows). A main sequence whose KV comes
// from a peer has no repair.
//
// Calls into the source come from Schedule, AddWaitingForKv, PartsReady, KvArrived and the checks
// of a queued sequence. The source must not call the scheduler back, except for its const
// functions.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/cache_key.h"
#include "cache/sequence_frame.h"
#include "common/strong_int.h"

namespace baton {

// A part that must be computed.
struct PartSpec {
  SequenceId id;                // new
  std::vector<TokenId> tokens;  // not empty, except for a repair whose rows are not known yet
  // Above 0: a repair, and the blocks that it takes. Its tokens do not lie in these blocks one
  // after the other; its frame has their places. They are committed in the scheduler only, and
  // nothing of it is ever inserted or cached.
  int32_t repair_blocks = 0;
  // With `shares_prefix`, the part matches cached prefixes of the namespace and inserts its own
  // full blocks (a system part). Otherwise it does neither. In both cases its block table never
  // changes once the part has begun.
  bool shares_prefix = false;
  // The part's KV arrives in its blocks from host memory, and the source copies it there after
  // FrameOfPart. The part waits for it (Scheduler::PartArrived).
  bool arrives = false;
  CacheNamespace cache_namespace;
  // Parts that this one sees. Its tokens are planned only when theirs are committed, in flight, or
  // in the same plan. Parts that have ended count as committed.
  std::vector<SequenceId> after;
};

class PartSource {
 public:
  virtual ~PartSource() = default;

  // Blocks that the parts of a queued main sequence would take from the available ones now: blocks
  // of missing parts, and cached blocks of the prefix tree that are evictable and would be locked.
  // The main sequence's own blocks do not count.
  virtual int32_t BlocksForParts(SequenceId main) const = 0;

  struct Admission {
    std::vector<PartSpec> missing;  // each one after the parts that it sees
    // Parts that another request created and that are not done. Their priority rises to that of the
    // main sequence, if it is higher.
    std::vector<SequenceId> waits_for;
  };
  // The main sequence is being admitted: takes references to all its parts, and creates the missing
  // ones. Their blocks are taken afterwards, in this order.
  virtual Admission Admit(SequenceId main) = 0;
  // The blocks of Admit could not be taken (contiguous mode found no free run). The parts that this
  // Admit created do not exist. Takes back everything that Admit did.
  virtual void Abandon(SequenceId main) = 0;
  // Frame of a part that has its blocks; all parts that it sees have theirs. Null: the part sees
  // itself alone, or the rows of the repair are not known yet.
  virtual std::shared_ptr<const SequenceFrame> FrameOfPart(SequenceId part) = 0;
  // Frame of an admitted main sequence if all its parts are committed, else null.
  virtual std::shared_ptr<const SequenceFrame> FrameIfReady(SequenceId main) = 0;

  // Blocks of cached chunks without references. They are not among the available blocks.
  virtual int32_t evictable_blocks() const = 0;
  // Evicts the least recently used one, if possible none that the sequence `wanted_by` would use.
  // Returns false if there is none.
  virtual bool EvictOne(SequenceId wanted_by) = 0;
};

}  // namespace baton
