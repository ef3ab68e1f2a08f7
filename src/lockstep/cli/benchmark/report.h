// The text that people see of a bench's document, and the complaints that decide the exit code.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep::cli::benchmark {

// The columns of nccl-tests and ours, line by line, so that a row can be shown as soon as it is measured. What all rows
// have in common is in the heading. Columns that do not fit in 80 characters are left out, the least important first.
class Table {
 public:
  // `document` contains all rows, with or without their times.
  explicit Table(const nlohmann::json& document);

  const std::string& heading() const { return heading_; }
  std::string line(const nlohmann::json& row) const;

 private:
  struct Shown {
    std::size_t column;  // index in the list of report.cpp
    std::size_t width;
  };

  std::string heading_;
  std::vector<Shown> shown_;
};

// The text below the rows: averages, limits and notes.
std::string footer(const nlohmann::json& document);

// Heading, rows and footer.
std::string table(const nlohmann::json& document);

// One line for each row that is wrong, or whose bus bandwidth is below `min_bandwidth` GB/s. Empty if all is well.
std::string complaints(const nlohmann::json& document, double min_bandwidth);

}  // namespace lockstep::cli::benchmark
