// The fields of a Hello, the frame that peers of all builds must be able to read.
//
// Its fields keep their places in all protocol versions. Behind the epoch stand:
//  - The oldest version spoken and the numerics' name. Both are left out if three things hold: no
//    field follows, oldest is newest − 1, and the name has the form rN. So builds from before these
//    fields can read the Hello of every peer that they could accept.
//  - From version 7 on the KV groups' text. If the newest version is 7 and the text is empty, the
//    Hello ends before it. A Hello of a later version always has it, because that version's fields
//    follow.
//  - The fields that a later version adds. Only a Hello of that version has them.
//
// Thread safety: pure functions on plain data.
#pragma once

#include "absl/status/status.h"
#include "kvtransfer/protocol/frame_fields.h"
#include "kvtransfer/protocol/transfer_frame.h"

namespace baton {

void WriteHello(FieldWriter& w, const HelloFrame& f);
// A Hello of a version that this build does not know is read as far as it is like the known ones:
// else with its versions alone, which are enough to refuse it by name.
void ReadHello(FieldReader& r, HelloFrame& f);

// Whether a fingerprint's strings fit a Hello.
absl::Status CheckFingerprintFits(const KvFingerprint& fingerprint);

}  // namespace baton
