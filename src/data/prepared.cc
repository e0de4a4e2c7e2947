#include "data/prepared.h"

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "core/manifest.h"
#include "core/parse.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kLargestText = uint64_t{1} << 30;

std::vector<std::string> read_lines(const fs::path& directory, const Manifest& manifest, const char* role) {
  const ManifestFile* const file = manifest.find(role);
  return file == nullptr ? std::vector<std::string>{} : split(read_file(directory / file->name, kLargestText), '\n');
}

TextPairs read_pairs(const fs::path& directory, const Manifest& manifest, const char* source, const char* target) {
  TextPairs pairs{read_lines(directory, manifest, source), read_lines(directory, manifest, target)};
  require(pairs.source.size() == pairs.target.size(), "{}: the {} has {} lines but the {} has {}", directory.string(),
          source, pairs.source.size(), target, pairs.target.size());
  return pairs;
}

std::string fingerprint_of(const Manifest& manifest) {
  Checksum sum;
  for (const ManifestFile& file : manifest.files) {
    sum.add(fmt::format("{} {} {}\n", file.role, file.bytes, file.checksum));
  }
  return sum.hex();
}

}  // namespace

Prepared Prepared::open(const fs::path& directory) {
  require(fs::is_directory(directory), "{} is not a directory; make one with tandem prepare", directory.string());
  require(has_manifest(directory),
          "{} is not a prepared directory: it has no manifest.json; make one with tandem prepare", directory.string());
  const Manifest manifest = read_manifest(directory);
  require(manifest.kind == kPreparedKind, "{} holds a {}, not prepared data", directory.string(), manifest.kind);
  const std::vector<std::string> damage = find_damage(directory, manifest);
  require(damage.empty(), "{}; prepare the data again", damage.empty() ? "" : damage.front());
  const auto path = [&](const char* role) { return file_of(directory, manifest, role, "; prepare it again"); };
  const bool joint = manifest.find(role::kTargetTokenizer) == nullptr;
  Prepared prepared{.directory = directory,
                    .train = Corpus::open(path(role::kCorpus), false),  // its checksum has just been compared
                    .valid = read_pairs(directory, manifest, role::kValidSource, role::kValidTarget),
                    .test = read_pairs(directory, manifest, role::kTestSource, role::kTestTarget),
                    .joint = joint,
                    .fingerprint = fingerprint_of(manifest),
                    .source = text::Subwords::load(path(role::kSourceTokenizer)),
                    .target = {}};
  if (!joint) {
    prepared.target.push_back(text::Subwords::load(path(role::kTargetTokenizer)));
  }
  for (const Side side : kSides) {
    require(prepared.train.vocabulary(side) == prepared.subwords(side).size(),
            "{}: the corpus was made for {} pieces, but the tokenizer has {}; prepare it again", directory.string(),
            prepared.train.vocabulary(side), prepared.subwords(side).size());
  }
  return prepared;
}

std::vector<int32_t> Prepared::plain_tokens(Side side, int64_t pair) const {
  std::vector<int32_t> stored, plain;
  train.append(side, pair, stored);
  if (std::ranges::find(stored, text::kUnk) == stored.end()) {
    subwords(side).encode(subwords(side).decode(stored), plain);
  }
  return plain.empty() ? stored : plain;
}

}  // namespace tandem::data
