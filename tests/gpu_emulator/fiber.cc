#include "tests/gpu_emulator/fiber.h"

#include <glog/logging.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cstdint>

#ifndef __x86_64__
#error "The emulator switches stacks on x86-64 only; build with -DBATON_TESTS=OFF."
#endif

// void baton_emulator_switch(void** save, void* target): pushes the callee-saved registers, stores
// the stack pointer in *save, takes the target's stack and registers.
// baton_emulator_enter: the first return address of a fiber. r12: argument, r13: entry.
asm(R"(
.text
.p2align 4
.type baton_emulator_switch, @function
baton_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size baton_emulator_switch, .-baton_emulator_switch
.p2align 4
.type baton_emulator_enter, @function
baton_emulator_enter:
  .cfi_startproc
  .cfi_undefined rip
  movq %r12, %rdi
  callq *%r13
  ud2
  .cfi_endproc
.size baton_emulator_enter, .-baton_emulator_enter
)");
extern "C" void baton_emulator_switch(void** save, void* target);
extern "C" void baton_emulator_enter();

namespace baton::gpu_emulator {
namespace {

constexpr size_t kStackPage = 4096;
#if defined(BATON_EMULATOR_ASAN) || defined(BATON_EMULATOR_TSAN)
constexpr size_t kStackBytes = 256 << 10;  // instrumented frames are several times as large
#else
constexpr size_t kStackBytes = 64 << 10;
#endif
constexpr size_t kStackStride = kStackPage + kStackBytes;
constexpr size_t kColourBytes = 5 * 64;  // odd number of cache lines: visits every set

}  // namespace

FiberStacks::FiberStacks(size_t count) : count_(count) {
  void* memory = mmap(nullptr, count * kStackStride, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PCHECK(memory != MAP_FAILED) << "no memory for " << count << " stacks";
  memory_ = static_cast<std::byte*>(memory);
  for (size_t i = 0; i < count; ++i) {
    PCHECK(mprotect(memory_ + i * kStackStride, kStackPage, PROT_NONE) == 0);
  }
}

FiberStacks::~FiberStacks() {
#ifdef BATON_EMULATOR_ASAN
  ASAN_UNPOISON_MEMORY_REGION(memory_, count_ * kStackStride);
#endif
  PCHECK(munmap(memory_, count_ * kStackStride) == 0);
}

std::byte* FiberStacks::low(size_t index) const {
  return memory_ + index * kStackStride + kStackPage;
}

std::byte* FiberStacks::high(size_t index) const {
  return memory_ + (index + 1) * kStackStride - index * kColourBytes % kStackPage;
}

Fiber::Fiber() {
#ifdef BATON_EMULATOR_ASAN
  pthread_attr_t attributes;
  void* low = nullptr;
  CHECK_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
  CHECK_EQ(pthread_attr_getstack(&attributes, &low, &stack_bytes_), 0);
  CHECK_EQ(pthread_attr_destroy(&attributes), 0);
  stack_low_ = static_cast<const std::byte*>(low);
#endif
#ifdef BATON_EMULATOR_TSAN
  thread_sanitizer_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(std::byte* stack_low, std::byte* stack_high, void (*entry)(void*), void* argument)
    : stack_low_(stack_low), stack_bytes_(stack_high - stack_low), owns_sanitizer_fiber_(true) {
  auto* top = reinterpret_cast<void**>(stack_high);
  *--top = nullptr;  // after the switch's return, the stack pointer is a multiple of 16
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&baton_emulator_enter);
  *--top = nullptr;                         // rbp: ends a walk over frames
  *--top = nullptr;                         // rbx
  *--top = argument;                        // r12
  *--top = reinterpret_cast<void*>(entry);  // r13
  *--top = nullptr;                         // r14
  *--top = nullptr;                         // r15
  stack_pointer_ = top;
#ifdef BATON_EMULATOR_TSAN
  thread_sanitizer_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef BATON_EMULATOR_TSAN
  if (owns_sanitizer_fiber_) __tsan_destroy_fiber(thread_sanitizer_fiber_);
#endif
}

void Fiber::Entered() {
#ifdef BATON_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

void Fiber::Switch(Fiber& from, Fiber& to) {
#ifdef BATON_EMULATOR_TSAN
  __tsan_switch_to_fiber(to.thread_sanitizer_fiber_, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef BATON_EMULATOR_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, to.stack_low_, to.stack_bytes_);
#endif
  baton_emulator_switch(&from.stack_pointer_, to.stack_pointer_);
#ifdef BATON_EMULATOR_ASAN
  const void* left_stack = nullptr;
  size_t left_bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &left_stack, &left_bytes);
#endif
}

}  // namespace baton::gpu_emulator
