// What people see of a bench's document, and what a script learns from the exit code.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep::cli::benchmark {

// nccl-tests' columns, and ours, line by line: a row can be shown as soon as it is measured. What all rows have in
// common stands in the heading. Columns that do not fit in 80 characters are left out, the least important first.
class Table {
 public:
  // `document` has all rows, with or without their times.
  explicit Table(const nlohmann::json& document);

  const std::string& heading() const { return heading_; }
  std::string line(const nlohmann::json& row) const;

 private:
  struct Shown {
    std::size_t column;  // in the list of report.cpp
    std::size_t width;
  };

  std::string heading_;
  std::vector<Shown> shown_;
};

// What stands below the rows: averages, limits and notes.
std::string footer(const nlohmann::json& document);

// Heading, rows and footer.
std::string table(const nlohmann::json& document);

// The rows that are wrong, or slower on the bus than `min_bandwidth` GB/s: one line each. Empty when all is well.
std::string complaints(const nlohmann::json& document, double min_bandwidth);

// "64K", "1.5M", "100": a size as people type it.
std::string brief_bytes(double bytes);

}  // namespace lockstep::cli::benchmark
