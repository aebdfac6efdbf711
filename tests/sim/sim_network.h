// The simulated network: latency, partitions, and connections that break with a process or a path.
//
// A lane is one direction of one connection or call. Lanes keep TCP's promises: nothing is lost,
// duplicated or reordered. Data that a partition holds back arrives when the partition heals. Data
// is lost only when the connection breaks. A connection breaks for one of these reasons:
//   - the process at the other end dies
//   - a reset
//   - for calls: the server's keepalive gets no reply
//
// There is no order between lanes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/sim/event_queue.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_random.h"

namespace baton {

enum class MessageKind : uint8_t {
  kCall,
  kTicket,
  kHeartbeat,
  kEvents,  // events of a worker's cache
  kStream,
};

// Decides how the network treats one message.
struct Verdict {
  enum class Action : uint8_t {
    kPass,
    kReset,      // the connection breaks instead
    kDuplicate,  // heartbeats only: as if the client had retried
    kFlip,       // streams only: one bit
    kTruncate,   // streams only: a part arrives, then the connection breaks
  };
  Action action = Action::kPass;
  int64_t delay_us = 0;  // extra delay; also delays later messages in the lane
  uint64_t random = 0;   // selects the bit, or the size of the part
};

// Sees every message in order, and injects faults through its verdicts.
class MessageJudge {
 public:
  virtual ~MessageJudge() = default;
  virtual Verdict OnMessage(MessageKind kind, int32_t from, int32_t to) = 0;
};

// Connection or call that breaks with a process or a path.
class SimLink {
 public:
  virtual ~SimLink() = default;
  virtual void OnNodeDied(int32_t node) = 0;
  // Handles a reset. Both ends see it.
  virtual void OnReset() = 0;
  // Returns the node that serves the link and whose keepalive covers it. kNone: the link detects a
  // lost peer itself.
  static constexpr int32_t kNone = -1;
  virtual int32_t server() const = 0;
  // Returns true for a call that this node serves and has not finished.
  virtual bool IsServedBy(int32_t node) const = 0;
};

class SimNetwork {
 public:
  struct Lane {
    int64_t last_us = 0;
  };

  SimNetwork(EventQueue& queue, uint64_t seed) : queue_(queue), latencies_(seed, "latency") {}

  void Add(SimNode* node) { nodes_.push_back(node); }
  SimNode& node(int32_t id) { return *nodes_.at(static_cast<size_t>(id)); }
  EventQueue& queue() { return queue_; }
  void set_judge(MessageJudge* judge) { judge_ = judge; }
  Verdict Judge(MessageKind kind, int32_t from, int32_t to) {
    return judge_ == nullptr ? Verdict() : judge_->OnMessage(kind, from, to);
  }

  int64_t Latency() { return latencies_.Between(40, latencies_.OneIn(20) ? 3000 : 200); }
  // Runs `arrive` at the receiver's kernel, after everything sent before in this lane.
  void Deliver(Lane& lane, int32_t from, int32_t to, int64_t extra_us,
               std::function<void()> arrive);

  // Returns when the last message that a fault delayed arrives, or arrived; 0: there was none.
  int64_t delayed_until_us() const { return delayed_until_us_; }

  bool blocked(int32_t from, int32_t to) const { return blocked_.contains({from, to}); }
  // Returns the time at which this direction was last blocked or unblocked; 0: never.
  int64_t changed_us(int32_t from, int32_t to) const;
  void Block(int32_t from, int32_t to);
  void Unblock(int32_t from, int32_t to);
  void UnblockAll();

  void AddLink(int32_t a, int32_t b, const std::shared_ptr<SimLink>& link);
  void NodeDied(int32_t node);
  // Resets every link between the two nodes that `wanted` accepts.
  void ResetLinks(int32_t a, int32_t b, const std::function<bool(const SimLink&)>& wanted);

 private:
  using Path = std::pair<int32_t, int32_t>;
  struct KnownLink {
    int32_t a;
    int32_t b;
    std::weak_ptr<SimLink> link;
  };
  void Arrive(Path path, std::function<void()> arrive);
  std::vector<std::shared_ptr<SimLink>> LinksOf(
      const std::function<bool(const KnownLink&)>& wanted);

  EventQueue& queue_;
  SimRandom latencies_;
  std::vector<SimNode*> nodes_;
  MessageJudge* judge_ = nullptr;
  std::map<Path, uint64_t> blocked_;  // maps to the serial number of the block
  uint64_t next_block_ = 1;
  std::map<Path, int64_t> changed_us_;
  std::map<Path, std::deque<std::function<void()>>> held_;
  std::vector<KnownLink> links_;
  int64_t delayed_until_us_ = 0;
};

}  // namespace baton
