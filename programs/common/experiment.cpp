// SPDX-License-Identifier: Apache-2.0
#include "common/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace vlbatch::programs {
namespace {

std::string number(std::optional<double> v, const char* format = "{:.1f}") { return v ? fmt::format(fmt::runtime(format), *v) : "-"; }

// Runs that lost a request are not compared.
std::optional<double> speed_up_of(const experiment_row& r, const std::optional<double>& base) {
  if (!base || r.median().failed + r.median().dropped > 0) return std::nullopt;
  return *base / r.median().makespan_s;
}

std::string speed_up(const experiment_row& r, const std::optional<double>& base) {
  const std::optional<double> times = speed_up_of(r, base);
  return times ? fmt::format("{:.2f}x", *times) : "-";
}

struct column {
  const char* title;
  std::string (*text)(const experiment_row&, const std::optional<double>&);
};
// One list of columns for the terminal and the page.
const std::vector<column>& columns() {
  using row = const experiment_row&;
  using base = const std::optional<double>&;
  static const std::vector<column> all = {
      {"policy", [](row r, base) { return r.what.policy; }},
      {"vision", [](row r, base) { return r.what.vision; }},
      {"kv", [](row r, base) { return r.what.kv; }},
      {"enc.cache", [](row r, base) { return std::string(r.what.encoder_cache ? "on" : "off"); }},
      {"makespan s", [](row r, base) { return fmt::format("{:.2f}", r.median().makespan_s); }},
      {"(min-max)", [](row r, base) { return fmt::format("{:.2f}-{:.2f}", r.fastest_s(), r.slowest_s()); }},
      {"req/s", [](row r, base) { return fmt::format("{:.1f}", r.median().requests_per_s()); }},
      {"tok/s", [](row r, base) { return fmt::format("{:.0f}", r.median().tokens_per_s()); }},
      {"speed-up", [](row r, base b) { return speed_up(r, b); }},
      {"TTFT p50", [](row r, base) { return number(r.median().latency.ttft.p50); }},
      {"p90 ms", [](row r, base) { return number(r.median().latency.ttft.p90); }},
      {"TPOT ms", [](row r, base) { return number(r.median().latency.tpot.mean, "{:.2f}"); }},
      {"steps", [](row r, base) { return fmt::format("{}", r.median().stats.steps); }},
      {"rows/step", [](row r, base) { return fmt::format("{:.1f}", r.median().rows_per_step()); }},
      {"pads", [](row r, base) { return fmt::format("{}", r.median().stats.pad_tokens); }},
      {"empty", [](row r, base) { return fmt::format("{}", r.median().stats.empty_rows); }},
      {"encoder", [](row r, base) { return fmt::format("{:.0f} %", 100.0 * r.median().encoder_share()); }},
      {"right", [](row r, base) { return fmt::format("{}", r.median().correct); }},
      {"identical", [](row r, base) { return fmt::format("{}", r.median().identical); }},
  };
  return all;
}

nlohmann::json as_json(const latency_summary& s) {
  const auto value = [](const std::optional<double>& v) { return v ? nlohmann::json(*v) : nlohmann::json(nullptr); };
  return {{"mean", value(s.mean)}, {"p50", value(s.p50)}, {"p90", value(s.p90)}, {"p99", value(s.p99)}};
}

std::string escaped(const std::string& s) {
  std::string out;
  for (const char c : s) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

struct paint {
  activity what;
  const char* colour;
};
// Light to strong: what waits is pale, what computes stands out; padding is the colour of waste.
constexpr paint paints[] = {{activity::preparing, "#b39ddb"}, {activity::waiting, "#e8eaed"}, {activity::encoding, "#f6ae2d"},
                            {activity::prefill, "#2a6fdb"},   {activity::decode, "#3aa655"},  {activity::padding, "#d1495b"}};
const char* colour_of(activity a) {
  return std::find_if(std::begin(paints), std::end(paints), [&](const paint& p) { return p.what == a; })->colour;
}

// One strategy: a row a sequence, all strategies on the same scale of time.
std::string timeline_svg(const experiment_row& row, double longest_s) {
  const outcome& o = row.median();
  constexpr double width = 1120.0;
  constexpr double left = 4.0;
  const std::size_t n = std::max<std::size_t>(o.timeline.size(), 1);
  const double height = std::clamp(320.0 / static_cast<double>(n), 1.6, 14.0);
  const double bottom = height * static_cast<double>(n);
  const auto x = [&](time_point t) { return left + (width - 2 * left) * std::max(to_seconds(t - o.began), 0.0) / longest_s; };
  std::string s = fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"timeline of {}\">\n", width, bottom + 20,
                              escaped(row.what.label()));
  for (std::size_t i = 0; i < o.timeline.size(); ++i) {
    const timeline_row& r = o.timeline[i];
    s += fmt::format("<g><title>request {}: {:.3f} s to {:.3f} s</title>", static_cast<std::uint64_t>(r.id),
                     to_seconds(r.arrival - o.began), to_seconds(r.finished - o.began));
    for (const timeline_segment& g : r.segments) {
      const double w = std::max(x(g.end) - x(g.begin), 0.25);
      s += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>", x(g.begin),
                       height * static_cast<double>(i), w, height * 0.9, colour_of(g.what));
    }
    s += "</g>\n";
  }
  const double end = left + (width - 2 * left) * o.makespan_s / longest_s;
  s += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.1f}\" stroke=\"#222\" stroke-width=\"1\"/>", end, bottom + 4);
  s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{:.2f} s</text>\n</svg>\n", end, bottom + 16,
                   end > 80 ? "end" : "start", o.makespan_s);
  return s;
}

}  // namespace

const outcome& experiment_row::median() const {
  std::vector<const outcome*> sorted;
  for (const outcome& o : runs) sorted.push_back(&o);
  std::sort(sorted.begin(), sorted.end(), [](const outcome* a, const outcome* b) { return a->makespan_s < b->makespan_s; });
  return *sorted[(sorted.size() - 1) / 2];
}
double experiment_row::fastest_s() const {
  return std::min_element(runs.begin(), runs.end(), [](const outcome& a, const outcome& b) { return a.makespan_s < b.makespan_s; })
      ->makespan_s;
}
double experiment_row::slowest_s() const {
  return std::max_element(runs.begin(), runs.end(), [](const outcome& a, const outcome& b) { return a.makespan_s < b.makespan_s; })
      ->makespan_s;
}

std::optional<double> baseline_s(const std::vector<experiment_row>& rows) {
  std::optional<double> best;
  for (const experiment_row& r : rows) {
    if (r.what.policy != "sequential" || r.what.encoder_cache) continue;
    best = best ? std::min(*best, r.median().makespan_s) : r.median().makespan_s;
  }
  return best;
}

std::string as_table(const std::vector<experiment_row>& rows, const experiment_header& header) {
  const std::optional<double> base = baseline_s(rows);
  std::vector<std::vector<std::string>> cells(1);
  for (const column& c : columns()) cells[0].emplace_back(c.title);
  for (const experiment_row& r : rows) {
    cells.emplace_back();
    for (const column& c : columns()) cells.back().push_back(c.text(r, base));
  }
  std::vector<std::size_t> widths(columns().size());
  for (const auto& line : cells) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out = fmt::format("{}: {}, {} threads, kernels {}, max_num_seqs {}, max_num_batched_tokens {}\n{}, {}\n\n", header.model,
                                header.workload, header.threads, header.level, header.bounds.max_num_seqs,
                                header.bounds.max_num_batched_tokens, header.machine, header.git);
  for (const auto& line : cells) {
    for (std::size_t i = 0; i < line.size(); ++i)
      out += i < 4 ? fmt::format("{:<{}}  ", line[i], widths[i]) : fmt::format("{:>{}}  ", line[i], widths[i]);
    while (out.back() == ' ') out.pop_back();
    out += '\n';
  }
  return out;
}

std::string as_json(const std::vector<experiment_row>& rows, const experiment_header& header) {
  nlohmann::json all = nlohmann::json::array();
  const std::optional<double> base = baseline_s(rows);
  for (const experiment_row& r : rows) {
    const outcome& o = r.median();
    const std::optional<double> times = speed_up_of(r, base);
    nlohmann::json makespans = nlohmann::json::array();
    for (const outcome& run : r.runs) makespans.push_back(run.makespan_s);
    all.push_back({{"policy", r.what.policy},
                   {"kv", r.what.kv},
                   {"vision", r.what.vision},
                   {"backend", "cpu " + header.level},
                   {"model", header.model},
                   {"workload", header.workload},
                   {"seed", header.seed},
                   {"requests", header.requests},
                   {"completed", o.completed},
                   {"failed", o.failed},
                   {"dropped", o.dropped},
                   {"makespan_s", o.makespan_s},
                   {"makespans_s", makespans},
                   {"output_tokens", o.output_tokens},
                   {"output_tok_per_s", o.tokens_per_s()},
                   {"requests_per_s", o.requests_per_s()},
                   {"speed_up", times ? nlohmann::json(*times) : nlohmann::json(nullptr)},
                   {"ttft_ms", as_json(o.latency.ttft)},
                   {"tpot_ms", as_json(o.latency.tpot)},
                   {"itl_ms", as_json(o.latency.itl)},
                   {"e2e_ms", as_json(o.latency.e2e)},
                   {"steps", o.stats.steps},
                   {"rows_per_step", o.rows_per_step()},
                   {"empty_rows", o.stats.empty_rows},
                   {"pad_tokens", o.stats.pad_tokens},
                   {"preemptions", o.stats.preemptions},
                   {"recomputed_tokens", o.stats.recomputed_tokens},
                   {"swapped_bytes", 0},
                   {"kv_peak_blocks", o.kv_peak_blocks},
                   {"encoder_cache", r.what.encoder_cache},
                   {"encoded_tiles", o.stats.encoded_tiles},
                   {"encoder_share", o.encoder_share()},
                   {"correct", o.correct},
                   {"identical", o.identical},
                   {"threads", header.threads},
                   {"machine", header.machine},
                   {"git", header.git},
                   {"command", header.command}});
  }
  return all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string as_html(const std::vector<experiment_row>& rows, const experiment_header& header) {
  const std::optional<double> base = baseline_s(rows);
  double longest = 0.001;
  for (const experiment_row& r : rows) longest = std::max(longest, r.median().makespan_s);
  std::string s =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n"
      "<title>vlbatch: one by one, or as a list?</title>\n<style>\n"
      "body{font:15px/1.45 system-ui,sans-serif;color:#222;max-width:1160px;margin:24px auto;padding:0 16px}\n"
      "h1{font-size:24px;margin:0 0 4px}h2{font-size:17px;margin:26px 0 4px}p{margin:4px 0 10px}\n"
      ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}\n"
      "th,td{padding:3px 8px;text-align:right;border-bottom:1px solid #e3e3e3;white-space:nowrap}th{border-bottom:2px solid #888}\n"
      "th:nth-child(-n+4),td:nth-child(-n+4){text-align:left}tr.best td{background:#eaf6ec}\n"
      "svg{width:100%;height:auto;display:block;background:#fff;border:1px solid #e3e3e3}svg text{font:12px system-ui,sans-serif}\n"
      ".key span{display:inline-block;margin-right:18px}.key "
      "i{display:inline-block;width:14px;height:14px;margin-right:6px;vertical-align:-2px}\n"
      ".small{color:#555;font-size:13px}\n</style>\n</head>\n<body>\n<h1>Why is a list of (prompt, image) pairs faster in one call?</h1>\n";
  const auto best = std::min_element(rows.begin(), rows.end(), [](const experiment_row& a, const experiment_row& b) {
    if (a.what.encoder_cache != b.what.encoder_cache) return b.what.encoder_cache;
    return a.median().makespan_s < b.median().makespan_s;
  });
  if (base && best != rows.end()) {
    s += fmt::format(
        "<p><b>{}</b>: one by one {:.2f} s; {} {:.2f} s, <b>{:.1f} times</b> as fast, with the same tokens for {} of {} requests.</p>\n",
        escaped(header.workload), *base, escaped(best->what.label()), best->median().makespan_s, *base / best->median().makespan_s,
        best->median().identical, header.requests);
  }
  s += fmt::format(
      "<p class=\"small\">{}; {} threads, kernels {}; max_num_seqs {}, max_num_batched_tokens {}; {}; commit {}<br><code>{}</code></p>\n",
      escaped(header.model), header.threads, escaped(header.level), header.bounds.max_num_seqs, header.bounds.max_num_batched_tokens,
      escaped(header.machine), escaped(header.git), escaped(header.command));
  s += "<p class=\"key\">";
  for (const paint& p : paints) s += fmt::format("<span><i style=\"background:{}\"></i>{}</span>", p.colour, name_of(p.what));
  s += "</p>\n<p class=\"small\">One row a request, time from left to right, the same scale in every picture; the line is the end of the "
       "run. Green that runs in parallel is what "
       "batching buys: each pass over the weights serves every row that decodes.</p>\n";
  // One picture a strategy: its fastest lane and cache, and the encoder cache by itself.
  std::vector<const experiment_row*> shown;
  for (const experiment_row& r : rows) {
    const auto same = std::find_if(shown.begin(), shown.end(), [&](const experiment_row* o) {
      return o->what.policy == r.what.policy && o->what.encoder_cache == r.what.encoder_cache;
    });
    if (same == shown.end()) {
      shown.push_back(&r);
    } else if (r.median().makespan_s < (*same)->median().makespan_s) {
      *same = &r;
    }
  }
  for (const experiment_row* r : shown) {
    s += fmt::format("<h2>{}: {:.2f} s{}</h2>\n", escaped(r->what.label()), r->median().makespan_s,
                     base ? fmt::format(", {:.2f}x", *base / r->median().makespan_s) : "");
    s += timeline_svg(*r, longest);
  }
  s += "<h2>All configurations</h2>\n<p class=\"small\">Median run by makespan, with the fastest and slowest; speed-up over the fastest "
       "sequential row; TTFT from "
       "submission of the list; encoder: time in the vision lane over the makespan; identical: requests whose tokens equal those of the "
       "first sequential run.</p>\n<div class=\"wide\"><table>\n<tr>";
  for (const column& c : columns()) s += fmt::format("<th>{}</th>", escaped(c.title));
  s += "</tr>\n";
  for (const experiment_row& r : rows) {
    s += &r == &*best ? "<tr class=\"best\">" : "<tr>";
    for (const column& c : columns()) s += fmt::format("<td>{}</td>", escaped(c.text(r, base)));
    s += "</tr>\n";
  }
  return s + "</table></div>\n</body>\n</html>\n";
}

}  // namespace vlbatch::programs
