#include "observe/tensorboard.h"

#include <fmt/format.h>
#include <isa-l/crc.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "core/error.h"
#include "core/file.h"
#include "observe/metrics.h"

namespace tandem::observe {

namespace {

void put_little_endian(std::string& to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    to.push_back(static_cast<char>(value >> (8 * i)));
  }
}

// Writes protobuf messages field by field, without a schema: the few that event files are made of.
//
// Why not libprotobuf: Debian's SentencePiece library exports a protobuf of its own and of another version, and a
// process that holds both calls into the wrong one and crashes.
class ProtobufMessage {
 public:
  ProtobufMessage& integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtobufMessage& number(int field, double value) {
    key(field, 1);
    put_little_endian(bytes_, std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  ProtobufMessage& number(int field, float value) {
    key(field, 5);
    put_little_endian(bytes_, std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  ProtobufMessage& text(int field, std::string_view value) {  // also bytes and messages
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtobufMessage& message(int field, const ProtobufMessage& value) { return text(field, value.bytes_); }

  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int type) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_.push_back(static_cast<char>(value | 0x80));
    }
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

constexpr std::string_view kPrefix = "events.out.tfevents.";

// TensorBoard reads the files of a directory in the order of their names, so a new one gets a later second than all
// that are there.
int64_t free_second(const std::filesystem::path& directory) {
  auto second = static_cast<int64_t>(unix_time());
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    int64_t taken = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), taken).ec == std::errc()) {
      second = std::max(second, std::min<int64_t>(taken, 9'999'999'998) + 1);
    }
  }
  return second;
}

std::filesystem::path new_path(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  require(!error, "cannot make the directory {}: {}", directory.string(), error.message());
  return directory / fmt::format("{}{:010}.{}.{}.0", kPrefix, free_second(directory), host_name(), getpid());
}

// Event: wall_time 1, step 2, then one of file_version 3, summary 5, session_log 7. A step of 0 is left out, as
// protobuf does with defaults.
ProtobufMessage event_at(double time, int64_t step) {
  ProtobufMessage event;
  event.number(1, time);
  if (step != 0) {
    event.integer(2, step);
  }
  return event;
}

// SummaryMetadata: plugin_data 1 {plugin_name 1, content 2}
ProtobufMessage metadata(std::string_view plugin, std::string_view content = {}) {
  ProtobufMessage data;
  data.text(1, plugin);
  if (!content.empty()) {
    data.text(2, content);
  }
  return ProtobufMessage().message(1, data);
}

// Summary: repeated value 1 {tag 1, simple_value 2, tensor 8, metadata 9}
std::string hparams_event(double time, std::string_view tag, const ProtobufMessage& data) {
  const ProtobufMessage value = ProtobufMessage().text(1, tag).message(9, metadata("hparams", data.bytes()));
  return event_at(time, 0).message(5, ProtobufMessage().message(1, value)).bytes();
}

}  // namespace

uint32_t crc32c(std::string_view data) {
  // ISA-L leaves the initial value and the final inversion to the caller, and does not write to the buffer.
  auto* bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(data.data()));
  return crc32_iscsi(bytes, static_cast<int>(data.size()), 0xFFFFFFFF) ^ 0xFFFFFFFF;
}

uint32_t masked_crc32c(std::string_view data) {
  const uint32_t crc = crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

std::string frame(std::string_view event) {
  std::string record;
  put_little_endian(record, event.size(), 8);
  put_little_endian(record, masked_crc32c(record), 4);
  record += event;
  put_little_endian(record, masked_crc32c(event), 4);
  return record;
}

std::string version_event(double time) { return event_at(time, 0).text(3, "brain.Event:2").bytes(); }

std::string scalar_event(double time, int64_t step, const Scalars& scalars) {
  ProtobufMessage summary;
  for (const auto& [tag, number] : scalars) {
    summary.message(1, ProtobufMessage().text(1, tag).number(2, static_cast<float>(number)));
  }
  return event_at(time, step).message(5, summary).bytes();
}

// TensorProto: dtype 1 (7 = string), tensor_shape 2 {repeated dim 2 {size 1}}, repeated string_val 8
std::string text_event(double time, int64_t step, const std::string& tag, const std::string& markdown) {
  const ProtobufMessage shape = ProtobufMessage().message(2, ProtobufMessage().integer(1, 1));
  const ProtobufMessage tensor = ProtobufMessage().integer(1, 7).message(2, shape).text(8, markdown);
  const ProtobufMessage value = ProtobufMessage().text(1, tag).message(8, tensor).message(9, metadata("text"));
  return event_at(time, step).message(5, ProtobufMessage().message(1, value)).bytes();
}

// HParamsPluginData: session_start_info 3 {map hparams 1, start_time_secs 5} or session_end_info 4 {status 1,
// end_time_secs 2}; a map is repeated {key 1, value 2}, a value number_value 2, string_value 3 or bool_value 4.
std::string hyperparameter_event(double time, const Hyperparameters& values) {
  ProtobufMessage info;
  for (const auto& [name, value] : values) {
    ProtobufMessage to;
    if (const auto* number = std::get_if<double>(&value)) {
      to.number(2, *number);
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      to.integer(4, *flag ? 1 : 0);
    } else {
      to.text(3, std::get<std::string>(value));
    }
    info.message(1, ProtobufMessage().text(1, name).message(2, to));
  }
  info.number(5, time);
  return hparams_event(time, "_hparams_/session_start_info", ProtobufMessage().message(3, info));
}

std::string end_event(double time, bool success) {
  const ProtobufMessage info = ProtobufMessage().integer(1, success ? 1 : 2).number(2, time);
  return hparams_event(time, "_hparams_/session_end_info", ProtobufMessage().message(4, info));
}

// SessionLog: status 1 (1 = START)
std::string restart_event(double time, int64_t first_step) {
  return event_at(time, first_step).message(7, ProtobufMessage().integer(1, 1)).bytes();
}

EventWriter::EventWriter(const std::filesystem::path& directory, int64_t first_step)
    : file_(new_path(directory), true) {
  const double now = unix_time();
  write(version_event(now));
  write(restart_event(now, first_step));
}

void EventWriter::write(const std::string& event) { file_.append(frame(event)); }

}  // namespace tandem::observe
