// Names by which HTTP clients may call the served model.
//
// Thread safety: immutable after creation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton {

class ServedNames {
 public:
  // `more`: names separated by commas.
  explicit ServedNames(std::string_view more);

  // All names: `model_name`, the name in the model's file, and the others. Without repetition.
  std::vector<std::string> All(std::string_view model_name) const;
  bool Has(std::string_view model_name, std::string_view name) const;

 private:
  std::vector<std::string> more_;
};

}  // namespace baton
