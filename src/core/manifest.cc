#include "core/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/parse.h"

namespace tandem::inline core {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr uint64_t kLimit = 1 << 20;
constexpr const char* kFormat = "tandem";
constexpr int kVersion = 1;

Json files_json(const std::vector<ManifestFile>& files) {
  Json list = Json::array();
  for (const ManifestFile& file : files) {
    list.push_back({{"name", file.name}, {"role", file.role}, {"bytes", file.bytes}, {"checksum", file.checksum}});
  }
  return list;
}

Manifest parse(const std::string& text) {
  require(is_shallow_json(text), "its brackets are nested more than 32 deep");
  const Json json = Json::parse(text);
  require(json.at("format") == kFormat, "it is not a manifest of this program");
  const Json& version = json.at("version");
  require(version == kVersion, "its version is {}, this program reads version {}",
          version.is_number() ? version.dump() : version.type_name(), kVersion);
  Manifest manifest{json.at("kind").get<std::string>(), {}};
  for (const Json& entry : json.at("files")) {
    ManifestFile file{entry.at("name").get<std::string>(), entry.at("role").get<std::string>(),
                      entry.at("bytes").get<uint64_t>(), entry.at("checksum").get<std::string>()};
    require(!file.name.empty() && file.name.find('/') == std::string::npos && file.name != "..",
            "the file name '{}' leaves the directory", file.name);
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

}  // namespace

const ManifestFile* Manifest::find(const std::string& role) const {
  const auto found = std::ranges::find(files, role, &ManifestFile::role);
  return found == files.end() ? nullptr : &*found;
}

uint64_t Manifest::bytes() const {
  uint64_t sum = 0;
  for (const ManifestFile& file : files) {
    sum += file.bytes;
  }
  return sum;
}

std::string to_json(const Manifest& manifest) {
  const Json files = files_json(manifest.files);
  const Json json = {{"format", kFormat},
                     {"version", kVersion},
                     {"kind", manifest.kind},
                     {"files", files},
                     {"checksum", checksum(manifest.kind + files.dump())}};
  return json.dump(2) + "\n";
}

bool has_manifest(const fs::path& directory) {
  std::error_code error;
  return fs::is_regular_file(directory / "manifest.json", error);
}

Manifest read_manifest(const fs::path& directory) {
  const fs::path path = directory / "manifest.json";
  const std::string text = read_file(path, kLimit);
  Manifest manifest;
  try {
    manifest = parse(text);
  } catch (const std::exception& error) {
    fail("{} is damaged: {}", path.string(), error.what());
  }
  require(to_json(manifest) == text, "{} is damaged: its checksum does not match", path.string());
  return manifest;
}

fs::path file_of(const fs::path& directory, const Manifest& manifest, const char* role, const char* advice) {
  const ManifestFile* file = manifest.find(role);
  require(file != nullptr, "{} has no {}{}", directory.string(), role, advice);
  return directory / file->name;
}

std::vector<std::string> find_damage(const fs::path& directory, const Manifest& manifest) {
  std::vector<std::string> damage;
  for (const ManifestFile& file : manifest.files) {
    const fs::path path = directory / file.name;
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (error) {
      damage.push_back(fmt::format("{} cannot be read: {}", path.string(), error.message()));
    } else if (bytes != file.bytes) {
      damage.push_back(fmt::format("{} is damaged: it has {} bytes instead of {}", path.string(), bytes, file.bytes));
    } else if (const std::string sum = checksum_file(path); sum != file.checksum) {
      damage.push_back(
          fmt::format("{} is damaged: its checksum is {} instead of {}", path.string(), sum, file.checksum));
    }
  }
  return damage;
}

}  // namespace tandem::inline core
