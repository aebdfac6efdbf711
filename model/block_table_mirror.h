// The device's copy of the block tables, kept up to date with few, small copies.
//
// A host mirror remembers what every row holds on the device. Setting a row compares and marks only
// the entries that changed; Upload copies runs of changed entries, joined where they are close. A
// step that takes no new block and keeps its rows in place copies nothing.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/strong_int.h"
#include "kernels/device.h"
#include "model/staging_slot.h"

namespace baton {

class BlockTableMirror {
 public:
  // `device_table` has rows * stride entries and is all zero. `scratch` stands on the device where
  // a table has no block.
  BlockTableMirror(int32_t* device_table, int32_t rows, int64_t stride, BlockId scratch);

  // Entries behind the end of `table` keep what they were: nothing reads them.
  void SetRow(int32_t row, std::span<const BlockId> table);
  // Enqueues the copies, out of `slot`. REQUIRES: the slot has room for the rows that were set.
  void Upload(Stream& stream, StagingSlot& slot);

  int64_t stride() const { return stride_; }
  int64_t uploaded_entries() const { return uploaded_entries_; }  // since creation
  int64_t uploads() const { return uploads_; }                    // copies since creation

 private:
  struct DirtyRange {
    int64_t begin;
    int64_t end;
  };

  int32_t* device_table_;
  int64_t stride_;
  int32_t scratch_;
  std::vector<int32_t> mirror_;
  std::vector<DirtyRange> dirty_;  // rising while rows are set in order
  int64_t uploaded_entries_ = 0;
  int64_t uploads_ = 0;
};

}  // namespace baton
