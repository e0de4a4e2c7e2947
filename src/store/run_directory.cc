#include "store/run_directory.h"

#include <system_error>

#include "core/error.h"

namespace tandem::store {

namespace fs = std::filesystem;

namespace {

// Creates only the directory itself: the lock must be the first file in it, because it marks a run directory.
fs::path created(const fs::path& root) {
  require(!root.empty(), "no run directory was given: add run=DIRECTORY");
  std::error_code error;
  require(!fs::exists(root, error) || fs::is_directory(root, error), "{} is a file, so it cannot be a run directory",
          root.string());
  make_directory(root);
  require(fs::exists(root / "lock", error) || fs::is_empty(root, error),
          "{} is not empty and not a run directory; choose another name for the run", root.string());
  return root;
}

}  // namespace

RunDirectory::RunDirectory(const fs::path& root, Use use)
    : root_(use == Use::own ? created(root) : root), is_new_(use == Use::own && !fs::exists(root_ / "lock")) {
  if (use == Use::own) {
    lock_.emplace(root_ / "lock", "the run directory " + root.string());
    remove_tree(cleared());
  }
  make_directories();
}

void RunDirectory::make_directories() const {
  for (const fs::path& directory : {checkpoints(), metrics(), events()}) {
    make_directory(directory);
  }
}

fs::path RunDirectory::rank_log(int rank) const {
  make_directory(root_ / "logs");
  return root_ / "logs" / fmt::format("rank-{}.log", rank);
}

void RunDirectory::clear() {
  // One rename removes all checkpoints at once, so that after a kill there is none to resume from.
  std::error_code error;
  fs::rename(checkpoints(), cleared(), error);
  require(!error, "cannot rename {}: {}", checkpoints().string(), error.message());
  erase_all();
  make_directories();
}

void RunDirectory::erase_all() {
  for (const fs::path& path :
       {root_ / "latest", root_ / "best", cleared(), metrics(), events(), log(), config(), statistics(), algorithms(),
        root_ / "logs", root_ / kLaunchFile, root_ / "report.html", root_ / "report.md", root_ / "report.json"}) {
    remove_tree(path);
  }
}

void RunDirectory::abandon() {
  if (is_new_) {
    erase_all();
    remove_tree(checkpoints());
    remove_tree(root_ / "lock");
    std::error_code none;
    fs::remove(root_, none);  // fails if something else is in it
  }
}

}  // namespace tandem::store
