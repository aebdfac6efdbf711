#include "model/architectures.h"

#include <string>
#include <string_view>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "model/architecture.h"

namespace baton {

// The table. Each entry is a function in model/<name>/<name>_architecture.cc and a line in the
// list.
const Architecture& LlamaArchitecture();

ArchitectureList Architectures() {
  static const Architecture* const kAll[] = {&LlamaArchitecture()};
  return kAll;
}

absl::StatusOr<const Architecture*> FindArchitecture(const GgufFile& file, ArchitectureList known) {
  ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.architecture"));
  std::string names;
  for (const Architecture* architecture : known) {
    if (architecture->name() == name) return architecture;
    names += StrCat(names.empty() ? "" : ", ", "\"", architecture->name(), "\"");
  }
  return absl::UnimplementedError(
      StrCat("general.architecture is \"", PrintableName(name), "\", supported: ", names));
}

}  // namespace baton
