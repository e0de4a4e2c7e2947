#include "report/write_reports.h"

#include "core/error.h"
#include "core/file.h"
#include "report/json.h"
#include "report/page.h"
#include "report/readable.h"

namespace tandem {

void write_reports(std::span<const RunReport> reports, const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  require(!error, "cannot make the directory {}: {}", directory.string(), error.message());
  write_file(directory / "report.html", to_html(reports));
  write_file(directory / "report.md", to_markdown(reports));
  write_file(directory / "report.json", to_json(reports));
}

}  // namespace tandem
