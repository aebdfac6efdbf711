// Building blocks for hostile peers of a TCP transport: a transfer of three blocks, its frames and
// its bytes.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "common/crc32c.h"
#include "kvtransfer/sockets/create_socket_transport.h"
#include "kvtransfer/transport.h"
#include "tests/kvtransfer/patient_tcp.h"
#include "tests/kvtransfer/raw_peer.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {

inline constexpr int32_t kTokens = 40;  // three blocks of 16, the last one partly full

inline TransportFactory Tcp(TcpOptions tcp = kPatient, std::string listen = "127.0.0.1:0") {
  return [=](TransportOptions options) {
    return CreateTcpTransport(listen, "", std::move(options), tcp);
  };
}

inline ReceiveSpec Spec(uint64_t id) {
  return {.transfer_id = id, .blocks = MakeBlocks(5, 3), .tokens = kTokens};
}

inline AnnounceFrame Announcement(uint64_t id) {
  return {.transfer_id = id,
          .receiver_epoch = Epoch(2),
          .sender_transfer = 1,
          .first_block = 0,
          .block_count = 3,
          .tokens = kTokens,
          .available = 3,
          .final = true,
          .manifest = "m"};
}

// Returns true if one of several attempts of an honest peer gets an answer to its greeting. With
// short handshake timeouts, a pause of the machine may spoil some attempts.
inline bool IsHeard(const std::function<RawPeer()>& connect) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    RawPeer honest = connect();
    honest.Send(HelloFrame{.fingerprint = MakeFingerprint({}), .epoch = Epoch(1), .node = "raw"});
    const auto reply = honest.Read<HelloReplyFrame>();
    if (reply.has_value() && reply->accepted) return true;
  }
  return false;
}

inline HelloReplyFrame Accept(uint64_t epoch) {
  return {.accepted = true, .epoch = Epoch(epoch), .reason = ""};
}

struct RawBlock {
  BlockFrame frame;
  std::string payload;
};

inline RawBlock MakeRawBlock(const KvPoolLayout& layout, uint64_t id, int32_t block) {
  const int32_t valid = ValidTokens(layout.block_size(), kTokens, block);
  RawBlock raw{{.transfer_id = id,
                .receiver_epoch = Epoch(2),
                .sender_transfer = 1,
                .block = block,
                .valid_tokens = valid,
                .payload_bytes = BlockValidBytes(layout, valid),
                .piece_crcs = {}},
               {}};
  const size_t piece_bytes = PieceValidBytes(layout, {}, valid);
  for (int32_t piece = 0; piece < PieceCount(layout); ++piece) {
    const std::string bytes(piece_bytes, static_cast<char>('a' + piece + block));
    raw.frame.piece_crcs.push_back(Crc32c(bytes));
    raw.payload += bytes;
  }
  return raw;
}

}  // namespace baton
