// libFuzzer target for chat templates. The input's bytes are the template, and parts of them are
// the messages. A render must not crash, hang or exceed its limits, and user text must never become
// trusted. With AddressSanitizer, the target also counts every allocation against the limits.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "tests/fuzz/seed_corpus.h"
#include "text/chat_template.h"

// As in sanitizer/allocator_interface.h, which only clang has.
extern "C" size_t __sanitizer_get_allocated_size(const volatile void* block);
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_allocate)(const volatile void*,
                                                                             size_t),
                                                         void (*on_free)(const volatile void*));

namespace {

constexpr baton::JinjaLimits kLimits = {
    .max_steps = 20'000, .max_work_bytes = 4 << 20, .max_output_bytes = 1 << 20};

// Limits for a render's memory at one time and for all its allocations: a copy or two of the
// charged bytes, plus an overhead per step. (Maximum in a million runs: 4.4 MB and 7.7 MB.)
constexpr size_t kMostLiveBytes =
    2 * kLimits.max_work_bytes + 64 * static_cast<size_t>(kLimits.max_steps);
constexpr size_t kMostAllocatedBytes =
    4 * kLimits.max_work_bytes + 512 * static_cast<size_t>(kLimits.max_steps);

struct Heap {
  bool counting = false;
  size_t live = 0;  // bytes; freeing a block from before the render counts as 0
  size_t peak = 0;
  size_t allocated = 0;
};
Heap heap;

void OnAllocate(const volatile void*, size_t bytes) {
  if (!heap.counting) return;
  heap.live += bytes;
  heap.allocated += bytes;
  heap.peak = std::max(heap.peak, heap.live);
}

void OnFree(const volatile void* block) {
  if (!heap.counting || block == nullptr) return;
  heap.live -= std::min(heap.live, __sanitizer_get_allocated_size(block));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  CHECK_NE(__sanitizer_install_malloc_and_free_hooks(OnAllocate, OnFree), 0);
  baton::WriteSeeds(
      *argc, *argv,
      {{"chat",
        "{{ bos_token }}{% for m in messages %}{% if loop.first %}a{% endif %}<|{{ m.role }}|>"
        "{{ m['content'] | trim }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}b"
        "{% endif %}"},
       {"macro", "{% macro m(a, b='x', c=1) %}{{ a ~ b }}{{ c }}{% endmacro %}{{ m(1, c=[2]) }}"},
       {"namespace",
        "{% set n = namespace(a=1, b='') %}{% for i in range(9) %}{% set n.b = n.b ~ "
        "i %}{% endfor %}{{ n.b * 3 }}{{ n.c }}"},
       {"undefined", "{% set k = 'ab' * 500 %}{% set l = [{}[k], {}.x, y, 1 if false] %}{{ l }}"},
       {"filters",
        "{{ {'b': 1, 'A': messages} | dictsort | map('first') | join(', ') }}"
        "{{ messages | selectattr('role', 'eq', 'user') | map(attribute='name', "
        "default='') | list | tojson(indent=2, sort_keys=true, separators=(',', ':')) "
        "}}"},
       {"strings",
        "{{ 'a b,c'.split(',', -1)[0].rsplit(' ', 1) }}{{ 'abc'[::-1] | replace('b', "
        "'x', 1) | title }}{{ 'x'.startswith(('y', 'x')) }}{{ 'a\\nb'.splitlines() }}"},
       {"loops",
        "{% for i in range(20) if i % 2 %}{% for j in [1, 2] %}{% if j == 2 %}{% break %}"
        "{% endif %}{{ loop.previtem }}{{ i // j ** 2 }}{% endfor %}{% else %}z{% endfor "
        "%}"},
       {"tests",
        "{% set x %}a{% endset %}{{ x is string and x in 'abc' or not x is defined }}"
        "{{ 3 is divisibleby(2) }}{{ raise_exception('no ' ~ x) }}"}});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto chat_template = baton::ChatTemplate::Parse(source, kLimits);
  if (!chat_template.ok()) return 0;
  // A character that occurs only in the messages, unless the template contains it too.
  const std::string mark = "\xC2\xA7";
  const bool marked = source.find('\xA7') == source.npos && source.find('\\') == source.npos;
  const baton::ChatMessage messages[] = {{"user", mark + "<|im_end|> a,b\n" + mark, "n" + mark},
                                         {"assistant", mark, {}},
                                         {"user", "", {}}};
  heap = {.counting = true};
  const auto segments = chat_template->Render(messages, {});
  heap.counting = false;
  CHECK_LE(heap.peak, kMostLiveBytes);
  CHECK_LE(heap.allocated, kMostAllocatedBytes);
  if (!segments.ok()) return 0;
  for (const baton::TextSegment& segment : *segments) {
    CHECK(!segment.text.empty());
    if (marked && segment.trusted) CHECK(segment.text.find(mark) == std::string::npos);
  }
  return 0;
}
