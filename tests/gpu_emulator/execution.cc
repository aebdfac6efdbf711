#include "tests/gpu_emulator/execution.h"

#include <glog/logging.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tests/gpu_emulator/sanitizers.h"
#include "tests/gpu_emulator/vector_types.h"

thread_local constinit uint3 threadIdx = {};
thread_local constinit uint3 blockIdx = {};
thread_local constinit uint3 blockDim = {};
thread_local constinit uint3 gridDim = {};

namespace baton::gpu_emulator {
namespace {

constexpr uint32_t kMostIdleRounds = 10000;
// Blocks of a launch have fibers of their own up to this number of threads, with ThreadSanitizer.
constexpr uint64_t kMostCheckedThreads = 1024;
constexpr size_t kPrimitives = static_cast<size_t>(Primitive::kKernelWait) + 1;

thread_local constinit Execution* this_execution = nullptr;

}  // namespace

// What the fiber of a CUDA thread runs: one kernel call after another. An exception ends the call
// after a fault of the launch, so that the frames on the stack free what they own.
void RunThread(void* thread) {
  static_cast<Thread*>(thread)->fiber.Entered();
  while (true) {
    try {
      Execution& execution = ThisExecution();
      Acquire(&execution.launch_order_);
      execution.CheckFaultless();
      execution.kernel_.run(execution.params_.data());
      Release(&execution.end_order_);
      execution.EndThread();  // returns when the thread has its next role
      continue;
    } catch (const LaunchFault&) {
    }
    ThisExecution().LeaveFaulty();  // the same
  }
}

Thread::Thread(std::byte* stack_low, std::byte* stack_high)
    : fiber(stack_low, stack_high, &RunThread, this) {}

Execution& ThisExecution() {
  CHECK(this_execution != nullptr) << "device code runs outside a kernel";
  return *this_execution;
}

bool MemoryIsClosed() { return this_execution != nullptr && this_execution->memory_closed(); }

Execution::Execution(const ExecutionRules& rules, const Kernel& kernel, const LaunchShape& shape,
                     const void* params, size_t bytes, FiberPool& fibers, const EarlyStart* early)
    : rules_(rules),
      kernel_(kernel),
      shape_(shape),
      threads_of_block_(shape.block[0] * shape.block[1] * shape.block[2]),
      fibers_(fibers),
      early_(early),
      memory_closed_(early != nullptr && early->open_memory != nullptr),
      random_(rules.seed),
      places_(kPrimitives) {
  std::copy_n(static_cast<const std::byte*>(params), bytes, params_.begin());
  // Fibers must not allocate what another fiber frees.
  for (auto& places : places_) places.reserve(kMostPlaces);
}

uint64_t Execution::Draw() {  // SplitMix64 (Steele, Lea and Flood, 2014)
  uint64_t z = random_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

bool Execution::LandsEarly() {
  return rules_.landing == CopyLanding::kEarly ||
         (rules_.landing == CopyLanding::kSeeded && Draw() % 2 == 0);
}

bool Execution::Skipped(Primitive primitive, SourcePlace place) {
  auto& places = places_[static_cast<size_t>(primitive)];
  const size_t index = std::ranges::find(places, place) - places.begin();
  if (index == places.size()) {
    if (index == kMostPlaces) Fail("calls a primitive at too many places", place);
    places.push_back(place);
    if (primitive == rules_.skipped.primitive) {
      skips_[index] = ToString(place) == rules_.skipped.place;
    }
  }
  return primitive == rules_.skipped.primitive && skips_[index];
}

// ---- the host thread's side -----------------------------------------------------------------

absl::Status Execution::Start() {
  const auto blocks = [this](int i) { return static_cast<uint32_t>(shape_.grid[i]); };
  const uint64_t grid = uint64_t{blocks(0)} * blocks(1) * blocks(2);
  block_order_.resize(grid);
  std::iota(block_order_.begin(), block_order_.end(), 0);
  if (rules_.order == ExecutionOrder::kReverse) std::ranges::reverse(block_order_);
  if (rules_.order == ExecutionOrder::kSeeded) {
    for (size_t i = grid; i > 1; --i) std::swap(block_order_[i - 1], block_order_[Draw() % i]);
  }
  CHECK(this_execution == nullptr) << "a kernel started a kernel";
  this_execution = this;
  blockDim = {shape_.block[0], shape_.block[1], shape_.block[2]};
  gridDim = {blocks(0), blocks(1), blocks(2)};
  const size_t resident = std::min<uint64_t>(grid, std::max(1, rules_.resident_blocks));
  const uint64_t sets_of_all = std::min(grid, kMostCheckedThreads / threads_of_block_);
  const size_t sets = kRaceChecked ? std::max<size_t>(1, sets_of_all / resident) : 1;
  for (size_t i = 0; i < resident; ++i) {
    Block& block = blocks_.emplace_back();
    for (size_t set = 0; set < sets; ++set) {
      block.thread_sets.push_back(
          fibers_.Take((i * sets + set) * threads_of_block_, threads_of_block_));
    }
    StartBlock(block);
  }
  while (!failed_) {
    const auto next = std::ranges::find_if(warp_order_, [](Warp* w) { return w->runnable != 0; });
    if (next == warp_order_.end()) {
      if (!Unblock()) break;
      continue;
    }
    Enter(FirstOf(**next));
    Fiber::Switch(main_, current_->fiber);
    current_ = nullptr;
    for (Block& block : blocks_) {
      if (!block.running || block.live != 0 || failed_) continue;
      EndBlock(block);
      if (next_block_ < grid) StartBlock(block);
    }
  }
  if (!failed_ && std::ranges::any_of(blocks_, &Block::running)) {
    failed_ = true;
    failure_ =
        absl::StrCat("kernel ", kernel_.name, ": no thread can continue; ", WaitingThreads());
  }
  if (failed_) EndStoppedThreads();
  this_execution = nullptr;
  if (reads_only_) fibers_.read_only().Release(&end_order_);
  Acquire(&end_order_);
  return failed_ ? absl::InternalError(failure_) : absl::OkStatus();
}

void Execution::StartBlock(Block& block) {
  const UnrecordedAccesses unrecorded;  // the threads' lists come from their fibers
  const uint64_t number = block_order_[next_block_++];
  block.x = number % shape_.grid[0];
  block.y = number / shape_.grid[0] % shape_.grid[1];
  block.z = number / shape_.grid[0] / shape_.grid[1];
  block.running = true;
  block.live = threads_of_block_;
  block.barriers = {};
  block.orders.Start();
  block.shared.Start(shape_.shared_bytes);
  block.barriers_in_use.clear();
  block.unfenced_barriers.clear();
  block.products = std::vector<WarpgroupProducts>(threads_of_block_ / kWarpgroupThreads);
  block.set = (block.set + 1) % block.thread_sets.size();
  block.warps.resize((threads_of_block_ + kWarpLanes - 1) / kWarpLanes);
  for (uint32_t index = 0; index < threads_of_block_; ++index) {
    Warp& warp = block.warps[index / kWarpLanes];
    Thread& thread = *block.threads()[index];
    thread.in_kernel = true;
    thread.warp = &warp;
    thread.lane = static_cast<int>(index % kWarpLanes);
    thread.x = index % shape_.block[0];
    thread.y = index / shape_.block[0] % shape_.block[1];
    thread.z = index / shape_.block[0] / shape_.block[1];
    thread.waited = false;
    thread.fenced = FenceScope::kNone;
    thread.last_atomic = nullptr;
    thread.copies.Forget();
    thread.stores.Forget();
    thread.products = {};
    if (thread.lane == 0) {
      warp = {};
      warp.block = &block;
      warp.number = static_cast<int>(index / kWarpLanes);
    }
    warp.lanes[thread.lane] = &thread;
    warp.live |= LaneBit(thread.lane);
    warp.runnable = warp.live;
  }
  OrderWarps();
  Release(&launch_order_);
}

void Execution::EndBlock(Block& block) {
  block.running = false;
  if (block.shared.End()) return;
  failed_ = true;
  failure_ =
      absl::StrCat("kernel ", kernel_.name, ": block (", block.x, ", ", block.y, ", ", block.z,
                   ") wrote outside its ", shape_.shared_bytes, " bytes of shared memory");
}

void Execution::OrderWarps() {
  warp_order_.clear();
  for (Block& block : blocks_) {
    for (Warp& warp : block.warps) warp_order_.push_back(&warp);
  }
  if (rules_.order == ExecutionOrder::kReverse) std::ranges::reverse(warp_order_);
  if (rules_.order == ExecutionOrder::kSeeded) {
    for (size_t i = warp_order_.size(); i > 1; --i) {
      std::swap(warp_order_[i - 1], warp_order_[Draw() % i]);
    }
  }
  for (size_t i = 0; i < warp_order_.size(); ++i) {
    warp_order_[i]->position = i;
    warp_order_[i]->lanes_rise = rules_.order == ExecutionOrder::kForward ||
                                 (rules_.order == ExecutionOrder::kSeeded && Draw() % 2 == 0);
  }
}

// ---- which thread runs -----------------------------------------------------------------------

Thread& Execution::FirstOf(const Warp& warp) const {
  const int lane = warp.lanes_rise ? std::countr_zero(warp.runnable)
                                   : kWarpLanes - 1 - std::countl_zero(warp.runnable);
  return *warp.lanes[lane];
}

Thread* Execution::NextRunnable(const Warp& warp, int lane) {
  const uint32_t bit = LaneBit(lane);
  const uint32_t later = warp.runnable & (warp.lanes_rise ? ~(bit | (bit - 1)) : bit - 1);
  if (later != 0) {
    const int next =
        warp.lanes_rise ? std::countr_zero(later) : kWarpLanes - 1 - std::countl_zero(later);
    return warp.lanes[next];
  }
  if (warp.runnable != 0) return &FirstOf(warp);
  const size_t warps = warp_order_.size();
  for (size_t i = 1, at = warp.position; i < warps; ++i) {
    at = at + 1 == warps ? 0 : at + 1;
    if (warp_order_[at]->runnable != 0) return &FirstOf(*warp_order_[at]);
  }
  return nullptr;
}

// Called when no thread is runnable. Returns true if one is afterwards.
bool Execution::Unblock() {
  if (++idle_rounds_ > kMostIdleRounds) return false;
  bool any = false;
  if (!delayed_.empty() && !memory_closed_) LandOneLoad();
  for (Warp* warp : warp_order_) {
    any |= warp->polling != 0;
    warp->runnable |= warp->polling;
    warp->polling = 0;
  }
  return any;
}

void Execution::Delay(const TileLoad& load) {
  const UnrecordedAccesses unrecorded;
  delayed_.push_back(load);
}

void Execution::LandOneLoad() {
  const UnrecordedAccesses unrecorded;
  size_t index = 0;
  if (rules_.order == ExecutionOrder::kReverse) index = delayed_.size() - 1;
  if (rules_.order == ExecutionOrder::kSeeded) index = Draw() % delayed_.size();
  const TileLoad load = delayed_[index];
  delayed_.erase(delayed_.begin() + static_cast<ptrdiff_t>(index));
  LandLoad(load);
}

void Execution::NoteReadOnly(const void* address, size_t bytes, void* caller) {
  if (!reads_only_) fibers_.read_only().Acquire(&launch_order_);
  reads_only_ = true;
  fibers_.read_only().NoteRead(address, bytes, caller);
}

void Execution::Enter(Thread& next) {
  const Block& block = *next.warp->block;
  current_ = &next;
  threadIdx = {next.x, next.y, next.z};
  blockIdx = {block.x, block.y, block.z};
}

void Execution::SwitchTo(Thread& next) {
  Thread& left = *current_;
  Enter(next);
  if (&next != &left) Fiber::Switch(left.fiber, next.fiber);
}

// The running thread waits, and its state says so.
void Execution::Suspend() {
  Thread& me = *current_;
  while (true) {
    if (Thread* next = NextRunnable(*me.warp, me.lane)) {
      SwitchTo(*next);
      // The thread may have its next role, in another execution than this one.
      return ThisExecution().CheckFaultless();
    }
    if (!Unblock()) Fail("no thread can continue", me.waits_at);
  }
}

void Execution::CheckFaultless() const {
  if (failed_) throw LaunchFault();
}

// Continues each thread that is in the middle of the kernel. It throws at once.
void Execution::EndStoppedThreads() {
  for (const Block& block : blocks_) {
    if (!block.running) continue;
    for (Thread* thread : block.threads()) {
      if (!thread->in_kernel) continue;
      Enter(*thread);
      Fiber::Switch(main_, thread->fiber);
    }
  }
  current_ = nullptr;
}

void Execution::LeaveFaulty() {
  current_->in_kernel = false;
  Release(&end_order_);
  Fiber::Switch(current_->fiber, main_);
}

void Execution::EndThread() {
  Thread& me = *current_;
  Warp& warp = *me.warp;
  Block& block = *warp.block;
  const uint32_t bit = LaneBit(me.lane);
  Progressed();
  RequireWait("the end of the thread", me.waits_at);
  if (!me.stores.empty()) Fail("ended before its bulk stores had read shared memory", me.waits_at);
  if (me.products.issued() != me.products.waited()) {
    Fail("ended before its matrix products were done", me.waits_at);
  }
  if (block.live == 1 &&
      std::ranges::any_of(delayed_, [&](const TileLoad& l) { return l.block == &block; })) {
    Fail("the block ended before its copies had landed", me.waits_at);
  }
  me.in_kernel = false;
  warp.live &= ~bit;
  warp.runnable &= ~bit;
  --block.live;
  CheckEndedLanes(warp);
  Barrier& barrier = block.barriers[0];
  if (barrier.arrived > 0 && barrier.expected == 0 && barrier.arrived == block.live) {
    CompleteBarrier(block, barrier);
  }
  if (block.live == 0) {
    Fiber::Switch(me.fiber, main_);
  } else {
    me.waits_for = "";
    Suspend();
  }
}

void Execution::Fail(const std::string& what, SourcePlace place) {
  {
    const UnrecordedAccesses unrecorded;
    const Thread& me = *current_;
    const Block& block = *me.warp->block;
    failure_ = absl::StrCat("kernel ", kernel_.name, ", block (", block.x, ", ", block.y, ", ",
                            block.z, "), thread (", me.x, ", ", me.y, ", ", me.z, "), ",
                            ToString(place), ": ", what, "; ", WaitingThreads());
    failed_ = true;
  }
  throw LaunchFault();
}

// Lists the threads that wait: runs of equal places, by block and thread.
std::string Execution::WaitingThreads() const {
  constexpr int kMostRuns = 12;
  std::string list = "waiting:";
  int runs = 0;
  for (const Block& block : blocks_) {
    if (!block.running) continue;
    const auto waits = [&](uint32_t i) {
      const Warp& warp = block.warps[i / kWarpLanes];
      const uint32_t bit = LaneBit(static_cast<int>(i % kWarpLanes));
      return (warp.live & bit) != 0 && (warp.runnable & bit) == 0;
    };
    const auto alike = [&](uint32_t i, uint32_t j) {
      return waits(i) == waits(j) && block.threads()[i]->waits_at == block.threads()[j]->waits_at &&
             block.threads()[i]->waits_for == block.threads()[j]->waits_for;
    };
    for (uint32_t i = 0, end = 0; i < threads_of_block_; i = end) {
      for (end = i + 1; end < threads_of_block_ && alike(i, end);) ++end;
      if (!waits(i) || ++runs > kMostRuns) continue;
      absl::StrAppend(&list, " block (", block.x, ", ", block.y, ", ", block.z, ") threads ", i,
                      " to ", end - 1, " in ", block.threads()[i]->waits_for, " at ",
                      ToString(block.threads()[i]->waits_at), ";");
    }
  }
  if (runs == 0) return "no thread waits";
  if (runs > kMostRuns) absl::StrAppend(&list, " and ", runs - kMostRuns, " more groups;");
  list.pop_back();
  return list;
}

}  // namespace baton::gpu_emulator
