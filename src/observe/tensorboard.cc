#include "observe/tensorboard.h"

#include <fmt/format.h>
#include <isa-l/crc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.h"
#include "observe/metrics.h"
#include "tensorboard.pb.h"

namespace tandem {

namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

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

events::Event event_at(double time, int64_t step) {
  events::Event event;
  event.set_wall_time(time);
  event.set_step(step);
  return event;
}

std::string hparams_event(double time, const char* tag, const events::HParamsPluginData& data) {
  events::Event event = event_at(time, 0);
  events::Summary::Value* value = event.mutable_summary()->add_value();
  value->set_tag(tag);
  events::SummaryMetadata::PluginData* plugin = value->mutable_metadata()->mutable_plugin_data();
  plugin->set_plugin_name("hparams");
  plugin->set_content(data.SerializeAsString());
  return event.SerializeAsString();
}

void put_little_endian(std::string& to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    to.push_back(static_cast<char>(value >> (8 * i)));
  }
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

std::string version_event(double time) {
  events::Event event = event_at(time, 0);
  event.set_file_version("brain.Event:2");
  return event.SerializeAsString();
}

std::string scalar_event(double time, int64_t step, const Scalars& scalars) {
  events::Event event = event_at(time, step);
  for (const auto& [tag, number] : scalars) {
    events::Summary::Value* value = event.mutable_summary()->add_value();
    value->set_tag(tag);
    value->set_simple_value(static_cast<float>(number));
  }
  return event.SerializeAsString();
}

std::string text_event(double time, int64_t step, const std::string& tag, const std::string& markdown) {
  events::Event event = event_at(time, step);
  events::Summary::Value* value = event.mutable_summary()->add_value();
  value->set_tag(tag);
  value->mutable_tensor()->set_dtype(7);
  value->mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(1);
  value->mutable_tensor()->add_string_val(markdown);
  value->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  return event.SerializeAsString();
}

EventWriter::EventWriter(const std::filesystem::path& directory, int64_t first_step)
    : file_(new_path(directory), true) {
  const double now = unix_time();
  write(version_event(now));
  restart(now, first_step);
}

void EventWriter::write(const std::string& event) { file_.append(frame(event)); }

void EventWriter::scalars(double time, int64_t step, const Scalars& scalars) {
  write(scalar_event(time, step, scalars));
}

void EventWriter::text(double time, int64_t step, const std::string& tag, const std::string& markdown) {
  write(text_event(time, step, tag, markdown));
}

void EventWriter::hyperparameters(double time, const Hyperparameters& values) {
  events::HParamsPluginData data;
  events::SessionStartInfo* info = data.mutable_session_start_info();
  info->set_start_time_secs(time);
  for (const auto& [name, value] : values) {
    events::HParamValue& to = (*info->mutable_hparams())[name];
    if (const auto* number = std::get_if<double>(&value)) {
      to.set_number_value(*number);
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      to.set_bool_value(*flag);
    } else {
      to.set_string_value(std::get<std::string>(value));
    }
  }
  write(hparams_event(time, "_hparams_/session_start_info", data));
}

void EventWriter::end_session(double time, bool success) {
  events::HParamsPluginData data;
  data.mutable_session_end_info()->set_status(success ? 1 : 2);
  data.mutable_session_end_info()->set_end_time_secs(time);
  write(hparams_event(time, "_hparams_/session_end_info", data));
}

void EventWriter::restart(double time, int64_t first_step) {
  events::Event event = event_at(time, first_step);
  event.mutable_session_log()->set_status(events::SessionLog::START);
  write(event.SerializeAsString());
}

}  // namespace tandem
