#include "dist/gloo_calls.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace tandem::dist {
namespace {

constexpr int64_t kPiece = 1 << 16;  // elements
constexpr int64_t kWindow = 12;      // pieces of one peer that may arrive before they are added

// A part of a shard; the offset is in bytes from the beginning of the whole buffer.
struct Piece {
  size_t offset = 0;
  size_t bytes = 0;
};

int64_t pieces_of(const Shard& shard) { return (shard.count + kPiece - 1) / kPiece; }

Piece piece_of(const Shard& shard, DType type, int64_t index) {
  const int64_t begin = index * kPiece;
  const int64_t count = std::min(kPiece, shard.count - begin);
  return {(shard.begin + begin) * size_of(type), count * size_of(type)};
}

// The owner's shard of a buffer, which is sent to or received from a peer. The slot of a message is the transfer's plus
// the index of its piece.
class Transfer {
 public:
  Transfer(GlooMesh& mesh, const View& buffer, int peer, int owner)
      : channel_(std::make_unique<GlooChannel>(mesh, peer, buffer.data, buffer.bytes())),
        shard_(shard_of(buffer.size(), mesh.size(), owner)),
        type_(buffer.dtype) {}

  void send(uint64_t slot, int64_t i) const {
    const Piece piece = piece_of(shard_, type_, i);
    channel_->send(slot + i, piece.offset, piece.bytes);
  }
  Transfer&& send_all(uint64_t slot) && {
    for (int64_t i = 0; i < pieces_of(shard_); ++i) {
      send(slot, i);
    }
    return std::move(*this);
  }
  Transfer&& receive_all(uint64_t slot) && {
    for (int64_t i = 0; i < pieces_of(shard_); ++i) {
      const Piece piece = piece_of(shard_, type_, i);
      channel_->receive(slot + i, piece.offset, piece.bytes);
    }
    return std::move(*this);
  }
  void wait_sent() const {
    for (int64_t i = 0; i < pieces_of(shard_); ++i) {
      channel_->wait_sent(piece_of(shard_, type_, i).bytes);
    }
  }
  // relayed: the peers have the data only after others have done their part.
  void wait_received(bool relayed, const std::function<void()>& meanwhile) const {
    for (int64_t i = 0; i < pieces_of(shard_); ++i) {
      channel_->wait_received(piece_of(shard_, type_, i).bytes, relayed);
      meanwhile();
    }
  }

 private:
  std::unique_ptr<GlooChannel> channel_;
  Shard shard_;
  DType type_;
};

void wait_sent(const std::vector<Transfer>& sends) { std::ranges::for_each(sends, &Transfer::wait_sent); }

// Gathers every rank's shard from that rank; `except` (or -1) needs nothing.
class Gather final : public GlooCall {
 public:
  Gather(GlooMesh& mesh, const View& buffer, uint64_t slot, int except = -1)
      : mesh_(mesh), buffer_(buffer), slot_(slot), except_(except) {}

  void begin() override {
    for (const int peer : mesh_.rank() == except_ ? std::vector<int>{} : mesh_.downwards()) {
      receives_.push_back(Transfer(mesh_, buffer_, peer, peer).receive_all(slot_));
    }
    for (const int peer : mesh_.upwards()) {
      if (peer != except_) {
        sends_.push_back(Transfer(mesh_, buffer_, peer, mesh_.rank()).send_all(slot_));
      }
    }
  }

  void finish(const std::function<void()>& meanwhile) override {
    for (const Transfer& receive : receives_) {
      receive.wait_received(false, meanwhile);
    }
    wait_sent(sends_);
  }

 private:
  GlooMesh& mesh_;
  const View buffer_;
  const uint64_t slot_;
  const int except_;
  std::vector<Transfer> receives_, sends_;
};

// Gives every rank its shard, then gathers them: so all connections are used, and the root sends about twice the
// buffer, however many ranks there are.
class Broadcast final : public GlooCall {
 public:
  Broadcast(GlooMesh& mesh, const View& buffer, int root, uint64_t slot, uint64_t second_slot)
      : mesh_(mesh), buffer_(buffer), root_(root), slot_(slot), second_(mesh, buffer, second_slot, root) {}

  void finish(const std::function<void()>& meanwhile) override {
    scatter();
    second_.begin();
    second_.finish(meanwhile);
  }

 private:
  void scatter() const {
    if (mesh_.rank() != root_) {
      return Transfer(mesh_, buffer_, root_, mesh_.rank()).receive_all(slot_).wait_received(false, [] {});
    }
    std::vector<Transfer> sends;
    for (const int peer : mesh_.upwards()) {
      sends.push_back(Transfer(mesh_, buffer_, peer, peer).send_all(slot_));
    }
    wait_sent(sends);
  }

  GlooMesh& mesh_;
  const View buffer_;
  const int root_;
  const uint64_t slot_;
  Gather second_;
};

// Adds in the one order of additions over ranks: parts[0][i] + parts[1][i] + ..., from the left. T: type in memory; A:
// type of the additions; i32 wraps. `out` may be one of the parts. Works block by block, so that the running sums stay
// in the first-level cache.
template <class T, class A>
void sum_in_order(void* out, std::span<const void* const> parts, int64_t count) {
  constexpr int64_t kBlock = 1024;
  std::array<A, kBlock> sums{};
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t length = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(parts[0]) + begin;
    for (int64_t i = 0; i < length; ++i) {
      sums[i] = static_cast<A>(first[i]);
    }
    for (const void* part : parts.subspan(1)) {
      const T* values = static_cast<const T*>(part) + begin;
      for (int64_t i = 0; i < length; ++i) {
        sums[i] += static_cast<A>(values[i]);
      }
    }
    for (int64_t i = 0; i < length; ++i) {
      static_cast<T*>(out)[begin + i] = static_cast<T>(sums[i]);
    }
  }
}

class Sum final : public GlooCall {
 public:
  // sums: receives the sums on every rank (all-reduce): the values' own memory, or other memory in f32; empty: each
  // rank gets the sums of its own shard in place (reduce-scatter). The sums are sent in the slots from `sum_slot`, the
  // values in those from `slot`.
  Sum(GlooMesh& mesh, GlooStaging& staging, const View& sums, const View& values, uint64_t slot, uint64_t sum_slot)
      : mesh_(mesh),
        free_staging_(staging),
        sums_(sums),
        values_(values),
        slot_(slot),
        sum_slot_(sum_slot),
        own_(shard_of(values.size(), mesh.size(), mesh.rank())),
        pieces_(pieces_of(own_)) {}
  ~Sum() override {
    arrivals_.clear();  // nothing arrives in the staging after this
    if (!staging_.empty()) {
      free_staging_.push_back(std::move(staging_));
    }
  }
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;

  void begin() override {
    if (pieces_ > 0) {
      take_staging();
      for (int64_t i = 0; i < kWindow; ++i) {
        receive_from_all(i);
      }
    }
    for (const int peer : sums_.empty() ? std::vector<int>{} : mesh_.downwards()) {
      // May overwrite the send buffer: a peer cannot have its sum before it has received all of that.
      receives_.push_back(Transfer(mesh_, sums_, peer, peer).receive_all(sum_slot_));
    }
    for (const int peer : mesh_.upwards()) {
      sends_.push_back(Transfer(mesh_, values_, peer, peer).send_all(slot_));
      if (!sums_.empty()) {
        sum_sends_.emplace_back(mesh_, sums_, peer, mesh_.rank());
      }
    }
  }

  void finish(const std::function<void()>& meanwhile) override {
    for (int64_t i = 0; i < pieces_; ++i) {
      add_up(i);
      meanwhile();
    }
    for (const Transfer& receive : receives_) {
      receive.wait_received(true, meanwhile);
    }
    wait_sent(sends_);
    wait_sent(sum_sends_);
  }

 private:
  void take_staging() {
    if (!free_staging_.empty()) {
      staging_ = std::move(free_staging_.back());
      free_staging_.pop_back();
    }
    stride_ = piece_of(own_, values_.dtype, 0).bytes;  // the largest piece
    ring_ = stride_ * std::min(kWindow, pieces_);
    staging_.resize(std::max(staging_.size(), ring_ * mesh_.size()));
    arrivals_.resize(mesh_.size());
    for (const int peer : mesh_.upwards()) {
      arrivals_[peer] = std::make_unique<GlooChannel>(mesh_, peer, staging_.data() + ring_ * peer, ring_);
    }
  }

  void receive_from_all(int64_t piece) {
    for (const int peer : piece < pieces_ ? mesh_.downwards() : std::vector<int>{}) {
      arrivals_[peer]->receive(slot_ + piece, piece % kWindow * stride_, piece_of(own_, values_.dtype, piece).bytes);
    }
  }

  // Adds the pieces of all ranks in their order while the next ones arrive, and starts to send the sum to the peers.
  void add_up(int64_t piece) {
    const auto [offset, bytes] = piece_of(own_, values_.dtype, piece);
    std::byte* const values = static_cast<std::byte*>(values_.data) + offset;
    std::vector<const void*> parts(mesh_.size());
    for (int peer = 0; peer < mesh_.size(); ++peer) {
      parts[peer] = peer == mesh_.rank() ? values : staging_.data() + ring_ * peer + piece % kWindow * stride_;
      if (peer != mesh_.rank()) {
        arrivals_[peer]->wait_received(bytes);
      }
    }
    add(values, parts, static_cast<int64_t>(bytes / size_of(values_.dtype)));
    if (!sums_.empty()) {
      send_sums(piece);
    }
    receive_from_all(piece + kWindow);
  }

  // bf16 is added in f32 and rounded once.
  void add(void* out, std::span<const void* const> parts, int64_t count) const {
    switch (values_.dtype) {
      case DType::f32:
        return sum_in_order<float, float>(out, parts, count);
      case DType::bf16:
        return sum_in_order<bf16, float>(out, parts, count);
      case DType::f64:
        return sum_in_order<double, double>(out, parts, count);
      case DType::i32:
        return sum_in_order<int32_t, uint32_t>(out, parts, count);
    }
  }

  void send_sums(int64_t piece) {
    if (sums_.data != values_.data) {
      const auto [offset, bytes] = piece_of(own_, sums_.dtype, piece);
      const auto first = static_cast<int64_t>(offset / size_of(sums_.dtype));
      const auto count = static_cast<int64_t>(bytes / size_of(sums_.dtype));
      std::copy_n(values_.host<double>() + first, count, sums_.host<float>() + first);
    }
    for (const Transfer& transfer : sum_sends_) {
      transfer.send(sum_slot_, piece);
    }
  }

  GlooMesh& mesh_;
  GlooStaging& free_staging_;
  const View sums_, values_;
  const uint64_t slot_, sum_slot_;
  const Shard own_;
  const int64_t pieces_;  // number of pieces in this rank's shard

  std::vector<std::byte> staging_;                      // a ring of pieces for each peer
  size_t stride_ = 0, ring_ = 0;                        // bytes of a piece and of a ring
  std::vector<Transfer> sends_;                         // values to peers
  std::vector<std::unique_ptr<GlooChannel>> arrivals_;  // values from peers, by rank
  std::vector<Transfer> sum_sends_;                     // sums of this rank's shard, to peers
  std::vector<Transfer> receives_;                      // sums from peers
};

}  // namespace

std::unique_ptr<GlooCall> make_gloo_call(GlooMesh& mesh, GlooStaging& staging, const Collective& call, uint64_t slot,
                                         uint64_t second_slot) {
  using Kind = Collective::Kind;
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::barrier:
      return std::make_unique<Sum>(mesh, staging, call.buffer, call.buffer, slot, second_slot);
    case Kind::rounded_all_reduce:
      return std::make_unique<Sum>(mesh, staging, call.sums, call.buffer, slot, second_slot);
    case Kind::reduce_scatter:
      return std::make_unique<Sum>(mesh, staging, View{}, call.buffer, slot, second_slot);
    case Kind::all_gather:
      return std::make_unique<Gather>(mesh, call.buffer, slot);
    case Kind::broadcast:
      return std::make_unique<Broadcast>(mesh, call.buffer, call.root, slot, second_slot);
  }
  fail("no such collective");
}

}  // namespace tandem::dist
