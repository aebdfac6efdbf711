#include "model/gguf/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as little-endian memory");

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMinAlignment = 8;
// Minimum size of one entry in the file. It bounds the counts of the header.
constexpr uint64_t kMinKeyValueBytes = 8 + 1 + 4 + 1;            // key length, key, type, value
constexpr uint64_t kMinTensorInfoBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, rank, one dimension, type,
                                                                 // offset

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(StrCat("gguf: ", parts...));
}

// Reads forward through the file. Every read names its field for error messages.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  template <typename... Field>
  absl::StatusOr<std::span<const std::byte>> ReadBytes(uint64_t count, const Field&... field) {
    if (count > remaining()) {
      return absl::DataLossError(StrCat("gguf: ", field..., " takes ", count, " bytes at offset ",
                                        position_, ", the file ends after ", remaining()));
    }
    const auto result = bytes_.subspan(position_, count);
    position_ += count;
    return result;
  }

  template <typename T, typename... Field>
  absl::StatusOr<T> Read(const Field&... field) {
    ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, ReadBytes(sizeof(T), field...));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  template <typename... Field>
  absl::StatusOr<std::string_view> ReadString(const Field&... field) {
    ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(field..., ": length"));
    ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, ReadBytes(length, field...));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

absl::Status CheckBools(std::span<const std::byte> bytes, std::string_view key) {
  const auto bad =
      std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad == bytes.end()) return absl::OkStatus();
  return Invalid("key '", PrintableName(key), "': bool is ", static_cast<int>(*bad),
                 ", not 0 or 1");
}

}  // namespace

std::string GgufTensor::ShapeString() const {
  return StrCat("[", absl::StrJoin(std::span(dimensions).first(dimension_count), ", "), "]");
}

// Parses the file in one pass, section by section, and fills `file_`.
class GgufFile::Parser {
 public:
  Parser(std::span<const std::byte> bytes, GgufFile& file)
      : bytes_(bytes), cursor_(bytes), file_(file) {}

  absl::Status Parse() {
    RETURN_IF_ERROR(ParseHeader());
    for (uint64_t i = 0; i < metadata_count_; ++i) RETURN_IF_ERROR(ParseKeyValue(i));
    RETURN_IF_ERROR(ReadAlignment());
    file_.tensors_.reserve(tensor_count_);
    for (uint64_t i = 0; i < tensor_count_; ++i) RETURN_IF_ERROR(ParseTensorInfo(i));
    RETURN_IF_ERROR(LocateData());
    return CheckOverlaps();
  }

 private:
  absl::Status ParseHeader() {
    ASSIGN_OR_RETURN(const std::span<const std::byte> magic,
                     cursor_.ReadBytes(kMagic.size(), "magic"));
    if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
      return Invalid("magic is not 'GGUF': the file is not a GGUF file");
    }
    ASSIGN_OR_RETURN(file_.version_, cursor_.Read<uint32_t>("version"));
    if (file_.version_ != 2 && file_.version_ != 3) {
      const bool swapped = file_.version_ != 0 && (file_.version_ & 0xffff) == 0;
      return Invalid("version is ", file_.version_, ", not 2 or 3",
                     swapped ? " (a big-endian file?)" : "");
    }
    ASSIGN_OR_RETURN(tensor_count_, cursor_.Read<uint64_t>("tensor_count"));
    ASSIGN_OR_RETURN(metadata_count_, cursor_.Read<uint64_t>("metadata_kv_count"));
    RETURN_IF_ERROR(CheckCount("tensor_count", tensor_count_, kMinTensorInfoBytes));
    RETURN_IF_ERROR(CheckCount("metadata_kv_count", metadata_count_, kMinKeyValueBytes));
    RETURN_IF_ERROR(CheckLimit("tensor_count", tensor_count_, kGgufMaxTensors));
    return CheckLimit("metadata_kv_count", metadata_count_, kGgufMaxKeys);
  }

  static absl::Status CheckLimit(std::string_view field, uint64_t count, uint64_t most) {
    if (count <= most) return absl::OkStatus();
    return Invalid(field, " is ", count, ", more than the limit of ", most);
  }

  absl::Status CheckCount(std::string_view field, uint64_t count, uint64_t bytes_each) const {
    const uint64_t most = cursor_.remaining() / bytes_each;
    if (count <= most) return absl::OkStatus();
    return Invalid(field, " is ", count, ", but ", cursor_.remaining(),
                   " remaining bytes hold at most ", most);
  }

  absl::Status ParseKeyValue(uint64_t index) {
    ASSIGN_OR_RETURN(const std::string_view key, cursor_.ReadString("key ", index));
    if (key.empty() || key.size() > kGgufMaxKeyBytes) {
      return Invalid("key ", index, " has ", key.size(), " bytes, not 1 to ", kGgufMaxKeyBytes);
    }
    ASSIGN_OR_RETURN(const GgufValueType type, ReadValueType(key, "type"));
    GgufValue value;
    value.type = type;
    switch (type) {
      case GgufValueType::kString:
        RETURN_IF_ERROR(ReadStringValue(key, value));
        break;
      case GgufValueType::kArray:
        RETURN_IF_ERROR(ReadArray(key, value));
        break;
      default:
        RETURN_IF_ERROR(ReadScalars(key, type, 1, value));
    }
    if (!file_.Add(key, value)) return Invalid("key '", PrintableName(key), "' appears twice");
    return absl::OkStatus();
  }

  absl::StatusOr<GgufValueType> ReadValueType(std::string_view key, const char* field) {
    ASSIGN_OR_RETURN(const uint32_t number,
                     cursor_.Read<uint32_t>("key '", PrintableName(key), "': ", field));
    const std::optional<GgufValueType> type = GgufValueTypeFromNumber(number);
    if (!type)
      return Invalid("key '", PrintableName(key), "': ", field, " ", number, " is unknown");
    return *type;
  }

  absl::Status ReadStringValue(std::string_view key, GgufValue& value) {
    ASSIGN_OR_RETURN(const std::string_view text,
                     cursor_.ReadString("key '", PrintableName(key), "': string"));
    value.bytes = std::as_bytes(std::span(text));
    return absl::OkStatus();
  }

  absl::Status ReadScalars(std::string_view key, GgufValueType type, uint64_t count,
                           GgufValue& value) {
    const uint64_t each = GgufScalarBytes(type);
    if (count > cursor_.remaining() / each) {
      return absl::DataLossError(StrCat(
          "gguf: key '", PrintableName(key), "': ", count, " values of ", each, " bytes at offset ",
          cursor_.position(), ", the file ends after ", cursor_.remaining()));
    }
    ASSIGN_OR_RETURN(value.bytes, cursor_.ReadBytes(count * each, "value"));
    return type == GgufValueType::kBool ? CheckBools(value.bytes, key) : absl::OkStatus();
  }

  absl::Status ReadArray(std::string_view key, GgufValue& value) {
    ASSIGN_OR_RETURN(value.element_type, ReadValueType(key, "array element type"));
    ASSIGN_OR_RETURN(value.count,
                     cursor_.Read<uint64_t>("key '", PrintableName(key), "': array length"));
    if (value.element_type == GgufValueType::kArray) {
      return Invalid("key '", PrintableName(key), "': an array of arrays is not supported");
    }
    if (value.element_type != GgufValueType::kString) {
      return ReadScalars(key, value.element_type, value.count, value);
    }
    RETURN_IF_ERROR(CheckCount(StrCat("key '", PrintableName(key), "': array length"), value.count,
                               sizeof(uint64_t)));
    const uint64_t begin = cursor_.position();
    const std::string field = StrCat("key '", PrintableName(key), "': string ");
    for (uint64_t i = 0; i < value.count; ++i) {
      RETURN_IF_ERROR(cursor_.ReadString(field, i).status());
    }
    value.bytes = bytes_.subspan(begin, cursor_.position() - begin);
    return absl::OkStatus();
  }

  absl::Status ReadAlignment() {
    ASSIGN_OR_RETURN(file_.alignment_, file_.GetU32Or("general.alignment", kDefaultAlignment));
    if (std::has_single_bit(file_.alignment_) && file_.alignment_ >= kMinAlignment) {
      return absl::OkStatus();
    }
    return Invalid("key 'general.alignment' is ", file_.alignment_, ", not a power of two from ",
                   kMinAlignment, " up");
  }

  absl::Status ParseTensorInfo(uint64_t index) {
    GgufTensor tensor;
    ASSIGN_OR_RETURN(tensor.name, cursor_.ReadString("tensor ", index, ": name"));
    if (tensor.name.empty() || tensor.name.size() > kGgufMaxTensorNameBytes) {
      return Invalid("tensor ", index, ": name has ", tensor.name.size(), " bytes, not 1 to ",
                     kGgufMaxTensorNameBytes);
    }
    const std::string prefix = StrCat("tensor '", PrintableName(tensor.name), "': ");
    ASSIGN_OR_RETURN(tensor.dimension_count, cursor_.Read<uint32_t>(prefix, "n_dimensions"));
    if (tensor.dimension_count < 1 || tensor.dimension_count > kGgufMaxDimensions) {
      return Invalid(prefix, "n_dimensions is ", tensor.dimension_count, ", not 1 to ",
                     kGgufMaxDimensions);
    }
    for (uint32_t i = 0; i < tensor.dimension_count; ++i) {
      ASSIGN_OR_RETURN(tensor.dimensions[i], cursor_.Read<uint64_t>(prefix, "dimension ", i));
    }
    ASSIGN_OR_RETURN(const uint32_t type_number, cursor_.Read<uint32_t>(prefix, "type"));
    const std::optional<GgmlType> type = GgmlTypeFromNumber(type_number);
    if (!type) return Invalid(prefix, "type ", type_number, " is unknown");
    tensor.type = *type;
    ASSIGN_OR_RETURN(tensor.offset, cursor_.Read<uint64_t>(prefix, "offset"));
    RETURN_IF_ERROR(CountValues(prefix, tensor));
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
      return Invalid(prefix, "name appears twice");
    }
    file_.tensors_.push_back(tensor);
    return absl::OkStatus();
  }

  // Sets `values` and checks it against the file's size, so that no later product with a block's
  // size overflows.
  absl::Status CountValues(const std::string& prefix, GgufTensor& tensor) const {
    const uint64_t block_values = GgmlBlockValues(tensor.type);
    const uint64_t most = bytes_.size() / GgmlBlockBytes(tensor.type) * block_values;
    tensor.values = 1;
    for (const uint64_t dimension : tensor.dimensions) {
      if (dimension == 0)
        return Invalid(prefix, "shape ", tensor.ShapeString(), " has a zero dimension");
      if (dimension > most / tensor.values) {
        return Invalid(prefix, "shape ", tensor.ShapeString(), " of ", GgmlTypeName(tensor.type),
                       " exceeds file size ", bytes_.size());
      }
      tensor.values *= dimension;
    }
    if (tensor.dimensions[0] % block_values == 0) return absl::OkStatus();
    return Invalid(prefix, "row of ", tensor.dimensions[0], " values is not a multiple of the ",
                   GgmlTypeName(tensor.type), " block of ", block_values);
  }

  // Converts the file's offsets, which count from the data section, to spans.
  absl::Status LocateData() {
    const uint64_t padding = -cursor_.position() & (file_.alignment_ - 1);
    // A file without tensors may end before the padding.
    const uint64_t begin = cursor_.position() + std::min(padding, cursor_.remaining());
    const uint64_t section_bytes = bytes_.size() - begin;
    for (GgufTensor& tensor : file_.tensors_) {
      const std::string prefix = StrCat("tensor '", PrintableName(tensor.name), "': ");
      if (tensor.offset % file_.alignment_ != 0) {
        return Invalid(prefix, "offset ", tensor.offset, " is not a multiple of the alignment ",
                       file_.alignment_);
      }
      const uint64_t size =
          tensor.values / GgmlBlockValues(tensor.type) * GgmlBlockBytes(tensor.type);
      if (tensor.offset > section_bytes || size > section_bytes - tensor.offset) {
        return absl::DataLossError(StrCat("gguf: ", prefix, "data of ", size, " bytes at offset ",
                                          tensor.offset, " of the data section (which starts at ",
                                          begin, ") exceeds file size ", bytes_.size()));
      }
      tensor.offset += begin;
      tensor.data = bytes_.subspan(tensor.offset, size);
    }
    return absl::OkStatus();
  }

  absl::Status CheckOverlaps() const {
    std::vector<const GgufTensor*> by_offset;
    by_offset.reserve(file_.tensors_.size());
    for (const GgufTensor& tensor : file_.tensors_) by_offset.push_back(&tensor);
    std::sort(by_offset.begin(), by_offset.end(),
              [](const auto* a, const auto* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < by_offset.size(); ++i) {
      const GgufTensor& before = *by_offset[i - 1];
      const uint64_t end = before.offset + before.data.size();
      if (end > by_offset[i]->offset) {
        return Invalid("tensor '", PrintableName(by_offset[i]->name), "': data at ",
                       by_offset[i]->offset, " overlaps that of '", PrintableName(before.name),
                       "', which ends at ", end);
      }
    }
    return absl::OkStatus();
  }

  const std::span<const std::byte> bytes_;
  Cursor cursor_;
  GgufFile& file_;
  uint64_t tensor_count_ = 0;
  uint64_t metadata_count_ = 0;
};

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> mapping, MappedFile::Open(path));
  absl::StatusOr<std::unique_ptr<GgufFile>> file = FromBytes(mapping->bytes());
  if (!file.ok()) {
    return absl::Status(file.status().code(), StrCat(path, ": ", file.status().message()));
  }
  (*file)->mapping_ = std::move(mapping);
  return file;
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::FromBytes(std::span<const std::byte> bytes) {
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->bytes_ = bytes;
  RETURN_IF_ERROR(Parser(bytes, *file).Parse());
  return file;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace baton
