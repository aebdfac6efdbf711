// Host mirror of the device's block tables, which keeps them up to date with few, small copies.
//
// The mirror remembers the device's contents of every row. SetRow compares and marks only the
// entries that changed. Upload adds copies of these entries, and joins ranges that lie close
// together. A step that takes no new block and keeps the order of its rows copies nothing.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/strong_int.h"
#include "model/input_copies.h"
#include "model/staging_slot.h"

namespace baton {

class BlockTableMirror {
 public:
  // REQUIRES: `device_table` has rows * stride entries, all zero. Where a table has no block, the
  // device's entry is `scratch`.
  BlockTableMirror(int32_t* device_table, int32_t rows, int64_t stride, BlockId scratch);

  // Entries behind the end of `table` keep their old values. No op reads them.
  void SetRow(int32_t row, std::span<const BlockId> table);
  // Adds the copies, staged in `slot`. REQUIRES: the slot has room for the rows that were set; the
  // copies are enqueued before the mirror's next use.
  void Upload(InputCopies& copies, StagingSlot& slot);

  int64_t stride() const { return stride_; }
  int64_t uploaded_entries() const { return uploaded_entries_; }  // since creation
  int64_t uploads() const { return uploads_; }                    // number of copies since creation

 private:
  struct DirtyRange {
    int64_t begin;
    int64_t end;
  };

  int32_t* device_table_;
  int64_t stride_;
  int32_t scratch_;
  std::vector<int32_t> mirror_;
  std::vector<DirtyRange> dirty_;  // rising if rows are set in order
  int64_t uploaded_entries_ = 0;
  int64_t uploads_ = 0;
};

}  // namespace baton
