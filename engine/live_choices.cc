#include "engine/live_choices.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/choices.h"

namespace baton {

void LiveChoices::Add(std::unique_ptr<Choice> choice) {
  const RequestHandle handle = choice->handle();
  const bool is_new = choices_.emplace(handle, std::move(choice)).second;
  CHECK(is_new) << "request handle " << handle << " is used twice";
}

Choice* LiveChoices::Find(RequestHandle handle) const {
  const auto found = choices_.find(handle);
  return found == choices_.end() ? nullptr : found->second.get();
}

std::vector<Choice*> LiveChoices::Of(RequestHandle first) const {
  std::vector<Choice*> choices;
  for (int32_t i = 0; i < kMaxChoices; ++i) {
    Choice* const choice = Find(first + i);
    if (choice != nullptr && choice->request->first == first) choices.push_back(choice);
  }
  return choices;
}

LiveChoices::Deadlines LiveChoices::CheckDeadlines(int64_t now_us) const {
  Deadlines deadlines;
  for (const auto& [handle, choice] : choices_) {
    const int64_t deadline_us = choice->request->deadline_us;
    if (deadline_us == 0) continue;
    if (deadline_us <= now_us) {
      deadlines.late.push_back(handle);
    } else if (!deadlines.next_us.has_value() || deadline_us < *deadlines.next_us) {
      deadlines.next_us = deadline_us;
    }
  }
  std::sort(deadlines.late.begin(), deadlines.late.end());  // a deterministic order
  return deadlines;
}

std::vector<RequestHandle> LiveChoices::Handles() const {
  std::vector<RequestHandle> handles;
  handles.reserve(choices_.size());
  for (const auto& [handle, choice] : choices_) handles.push_back(handle);
  std::sort(handles.begin(), handles.end());
  return handles;
}

}  // namespace baton
