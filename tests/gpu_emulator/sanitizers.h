// Annotations for the sanitizers. In a build without sanitizers, every function does nothing.
//
// The emulator's own sources are compiled without ThreadSanitizer, because they move values between
// the stacks of different CUDA threads. The kernels are compiled with it. Only these operations
// order two CUDA threads: launch, barrier, fence with an atomic operation, mbarrier.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_THREAD__) || defined(BATON_THREAD_SANITIZER)
#define BATON_EMULATOR_TSAN 1
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_func_entry(void* caller);
extern "C" void __tsan_func_exit();
extern "C" void __tsan_read_range(void* address, unsigned long bytes);
extern "C" void __tsan_write_range(void* address, unsigned long bytes);
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);
#endif
#ifdef __SANITIZE_ADDRESS__
#define BATON_EMULATOR_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace baton::gpu_emulator {

#ifdef BATON_EMULATOR_TSAN
inline constexpr bool kRaceChecked = true;
// Accesses before a Release of `order` happen before accesses after an Acquire of `order`.
inline void Release(void* order) { __tsan_release(order); }
inline void Acquire(void* order) { __tsan_acquire(order); }
// Accesses by the running CUDA thread that no compiled load or store stands for.
inline void NoteRead(const void* address, size_t bytes) {
  __tsan_read_range(const_cast<void*>(address), bytes);
}
inline void NoteWrite(void* address, size_t bytes) { __tsan_write_range(address, bytes); }

// A thread that only ThreadSanitizer knows. The running CUDA thread acts in its name.
class SilentThread {
 public:
  SilentThread() : fiber_(__tsan_create_fiber(0)) {}
  ~SilentThread() { __tsan_destroy_fiber(fiber_); }
  SilentThread(const SilentThread&) = delete;
  SilentThread& operator=(const SilentThread&) = delete;

  void Acquire(void* order) {
    const Name name(*this);
    __tsan_acquire(order);
  }
  void Release(void* order) {
    const Name name(*this);
    __tsan_release(order);
  }
  // caller: an instruction of the function that reports name.
  void NoteRead(const void* address, size_t bytes, void* caller) {
    const Name name(*this);
    __tsan_func_entry(caller);
    __tsan_read_range(const_cast<void*>(address), bytes);
    __tsan_func_exit();
  }

 private:
  struct Name {
    explicit Name(SilentThread& silent) : running(__tsan_get_current_fiber()) {
      __tsan_switch_to_fiber(silent.fiber_, __tsan_switch_to_fiber_no_sync);
    }
    ~Name() { __tsan_switch_to_fiber(running, __tsan_switch_to_fiber_no_sync); }
    void* running;
  };
  void* fiber_;
};

// While it lives, accesses of this thread are not recorded.
class UnrecordedAccesses {
 public:
  UnrecordedAccesses() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~UnrecordedAccesses() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  UnrecordedAccesses(const UnrecordedAccesses&) = delete;
  UnrecordedAccesses& operator=(const UnrecordedAccesses&) = delete;
};
#else
inline constexpr bool kRaceChecked = false;
inline void Release(void*) {}
inline void Acquire(void*) {}
inline void NoteRead(const void*, size_t) {}
inline void NoteWrite(void*, size_t) {}
struct SilentThread {
  void Acquire(void*) {}
  void Release(void*) {}
  void NoteRead(const void*, size_t, void*) {}
};
struct UnrecordedAccesses {
  UnrecordedAccesses() {}
  ~UnrecordedAccesses() {}
};
#endif

}  // namespace baton::gpu_emulator
