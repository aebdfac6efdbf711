#include "model/architecture.h"

#include "common/str_cat.h"

namespace baton {

absl::StatusOr<std::unique_ptr<ModelWeights>> Architecture::LoadRank(
    const GgufFile& /*file*/, Device& /*device*/, Communicator& communicator) const {
  return absl::UnimplementedError(StrCat("tensor-parallel is ", communicator.rank().degree,
                                         "; the architecture ", name(), " supports only 1"));
}

}  // namespace baton
