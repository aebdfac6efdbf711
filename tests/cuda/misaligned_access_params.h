// Parameters of misaligned_access.cu.
#pragma once

namespace baton {

struct MisalignedAccessParams {
  const float* from;  // [8], aligned to 16 bytes
  float* to;          // [8], aligned to 16 bytes
  int offset;         // in elements, of both
};

}  // namespace baton
