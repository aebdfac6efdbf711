// Encoding of a Hello, the frame that peers of all builds must be able to read.
//
// Its fields keep their places in all protocol versions. These may follow the epoch:
//  - The oldest supported version and the numerics' name. Both are left out if no field follows,
//    oldest is newest − 1, and the name has the form rN. Then builds that do not know these fields
//    can still read the Hello of every peer that they could accept.
//  - From version 7 on, the text of the KV groups. If the newest version is 7 and the text is
//    empty, the Hello ends before it. A Hello of a later version always has it, because that
//    version's fields follow.
//  - The fields that a later version adds. Only a Hello of that version has them.
//
// Thread safety: pure functions on plain data.
#pragma once

#include "absl/status/status.h"
#include "kvtransfer/protocol/frame_fields.h"
#include "kvtransfer/protocol/transfer_frame.h"

namespace baton {

void WriteHello(FieldWriter& w, const HelloFrame& f);
// Reads a Hello. Of an unknown later version it reads the fields that this build knows. If they
// cannot be read, it keeps only the versions, which are enough to refuse the peer with a clear
// reason.
void ReadHello(FieldReader& r, HelloFrame& f);

// Returns OK if a fingerprint's strings fit into a Hello. InvalidArgument names the string, its
// size and the limit.
absl::Status CheckFingerprintFits(const KvFingerprint& fingerprint);

}  // namespace baton
