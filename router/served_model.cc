#include "router/served_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton {

absl::StatusOr<std::shared_ptr<const ServedModel>> ServedModel::Create(
    ModelDescription description) {
  if (description.context_length < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("context_length is ", description.context_length, "; at least 2 is needed"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer,
                   Tokenizer::Create(description.tokenizer));
  description.tokenizer = TokenizerSpec();
  return std::shared_ptr<const ServedModel>(
      new ServedModel(std::move(description), std::move(tokenizer)));
}

ServedModel::ServedModel(ModelDescription description, std::unique_ptr<const Tokenizer> tokenizer)
    : description_(std::move(description)),
      tokenizer_(std::move(tokenizer)),
      encoder_(tokenizer_.get(), description_.chat_template) {}

}  // namespace baton
