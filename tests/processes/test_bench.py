"""`lockstep bench` and `lockstep compare`: real ranks, small sizes. What is measured is not judged here, only its shape."""

import json
import os
import shutil
import signal
import tempfile
import xml.etree.ElementTree

import harness

OPS = ("all_reduce", "reduce", "broadcast", "scatter", "gather", "all_gather", "reduce_scatter", "all_to_all", "barrier",
       "p2p")
QUICK = ("--rounds", 1, "--time", 1)
# What docs/command_line.md promises to scripts.
FIELDS = {"op", "engine", "transport", "algorithm", "ranks", "bytes", "dtype", "buffer", "time_us", "algbw_gbs",
          "busbw_gbs", "wrong"}


class BenchCase(harness.TestCase):
    def bench(self, *arguments, code=0, **options):
        quick = ("--rounds", 1) if "-n" in arguments else QUICK
        job = self.run_job("bench", *arguments, *quick, "--json", timeout=120, **options)
        self.assert_code(job, code)
        return json.loads(job.stdout)


class Document(BenchCase):
    def test_has_the_shape_that_scripts_rely_on(self):
        document = self.bench("all_reduce", "--size", "8,64K,1M")
        self.assertEqual([row["bytes"] for row in document["results"]], [8, 65536, 1 << 20])
        self.assertEqual(set(document["limits"]) & {"memory_traffic_gbs", "socket_exchange_gbs"},
                         {"memory_traffic_gbs", "socket_exchange_gbs"})
        self.assertGreater(document["limits"]["memory_traffic_gbs"], 0)
        for row in document["results"]:
            self.assertLessEqual(FIELDS, set(row))
            self.assertEqual((row["op"], row["engine"], row["transport"], row["ranks"], row["dtype"], row["buffer"]),
                             ("all_reduce", "native", "shm", 2, "float32", "arena"))
            time = row["time_us"]
            self.assertTrue(0 < time["min"] <= time["p50"] <= time["p99"] <= time["max"], time)
            self.assertGreater(time["mean"], 0)
            self.assertEqual(row["wrong"], 0)
            self.assertAlmostEqual(row["algbw_gbs"], row["bytes"] / time["p50"] / 1e3)
            self.assertAlmostEqual(row["busbw_gbs"], row["algbw_gbs"])  # the factor is 1 for 2 ranks
        self.assertIsNone(document["results"][0]["percent_of_limit"])
        self.assertGreater(document["results"][2]["percent_of_limit"], 0)

    def test_every_op_is_right_on_an_awkward_number_of_ranks(self):
        for op in OPS:
            with self.subTest(op):
                algorithms = () if op == "p2p" else ("--algorithm", "all")
                data = () if op == "barrier" else ("--size", "4,4100", "--buffer", "arena,private")
                document = self.bench(op, "--ranks", 3, "--no-limits", *algorithms, "--transport", "shm,tcp", *data)
                self.assertEqual({row["wrong"] for row in document["results"]}, {0})
                if op == "barrier":
                    continue
                self.assertEqual({(row["transport"], row["buffer"]) for row in document["results"]},
                                 {("shm", "arena"), ("shm", "private"), ("tcp", "private")})

    def test_types_and_reduce_operations(self):
        for dtype, op in (("float64", "mean"), ("half", "sum"), ("bfloat16", "max"), ("int8", "prod"), ("int32", "min"),
                          ("int64", "sum"), ("uint8", "sum")):
            with self.subTest(f"{dtype} {op}"):
                document = self.bench("all_reduce", "-d", dtype, "-o", op, "--ranks", 3, "--size", 1000, "--no-limits")
                self.assertEqual([row["wrong"] for row in document["results"]], [0])

    def test_all_types_and_all_reduce_operations(self):
        document = self.bench("reduce", "-d", "all", "-o", "all", "--size", 1024, "--no-limits")
        kinds = {(row["dtype"], row["redop"]) for row in document["results"]}
        self.assertEqual(len(kinds), len(document["results"]))
        self.assertEqual(len(kinds), 8 * 5 - 4)  # integers have no mean
        self.assertEqual({row["wrong"] for row in document["results"]}, {0})

    def test_says_where_and_when(self):
        document = self.bench("barrier")
        self.assertEqual(set(document["machine"]), {"version", "host", "processor", "date"})
        self.assertRegex(document["machine"]["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(document["threads"], 1)

    def test_what_was_sent_is_counted(self):
        row, = self.bench("all_reduce", "--size", "1K", "--ranks", 4, "--algorithm", "ring", "--no-limits")["results"]
        self.assertEqual(row["sent"], {"messages": 6, "bytes": 1536})
        self.assertEqual(row["sent_by_all"], {"messages": 24, "bytes": 4 * 1536})

    def test_cold_buffers(self):
        row, = self.bench("all_reduce", "--size", "4M", "--rotate", "--no-limits", "-n", 3)["results"]
        self.assertGreater(row["buffers"], 1)
        self.assertEqual(row["wrong"], 0)

    def test_calls_and_checks_are_as_asked(self):
        row, = self.bench("broadcast", "--root", 1, "--size", 64, "-n", 17, "-w", 0, "-c", 0, "--no-limits")["results"]
        self.assertEqual((row["root"], row["wrong"]), (1, None))
        self.assertTrue(17 <= row["calls"] < 34, row["calls"])

    def test_a_world_of_one(self):
        row, = self.bench("all_reduce", "--ranks", 1, "--size", "1K")["results"]
        self.assertEqual((row["ranks"], row["wrong"], row["busbw_gbs"]), (1, 0, 0))


class Table(BenchCase):
    def test_has_the_columns_of_nccl_tests_and_lines_up(self):
        job = self.run_job("bench", "all_reduce", "-b", 8, "-e", "1K", "-f", 128, *QUICK, timeout=60)
        self.assert_code(job, 0)
        lines = job.stdout.splitlines()
        head = next(line for line in lines if "algbw" in line)
        rows = [line for line in lines if not line.startswith("#")]
        self.assertEqual(len(rows), 2)
        for title in ("size", "count", "p50", "p99", "mean", "algbw", "busbw", "#wrong"):
            end = head.index(f" {title}") + len(title) + 1
            for row in rows:
                self.assertNotEqual(row[end - 1], " ", f"{title}\n{job.stdout}")
                self.assertIn(row[end:end + 1], ("", " "), f"{title}\n{job.stdout}")
        self.assertIn("# Avg bus bandwidth    : ", job.stdout)
        self.assertTrue(all(len(line) <= 80 for line in lines), job.stdout)
        self.assertEqual(job.stderr, "")

    def test_a_row_is_shown_when_it_is_measured(self):
        job = self.start("bench", "all_reduce", "--size", "8,1M", "--rounds", 4, "--time", 2000, "--no-limits", timeout=60)
        job.wait_for_line(r"^ +8 ")
        self.assertIsNone(job.process.poll())
        job.signal(signal.SIGTERM)
        job.wait()
        self.assertEqual(job.stdout.count("1048576"), 0)


class ExitCodes(BenchCase):
    def test_a_floor_that_is_not_reached_is_3(self):
        self.bench("all_reduce", "--size", "64K", "--no-limits", "--min-bw", 0.000001)
        job = self.run_job("bench", "all_reduce", "--size", "64K", "--no-limits", "--min-bw", 1e6, *QUICK, timeout=60)
        self.assert_code(job, 3)
        self.assertRegex(job.stderr, r"all_reduce of 64K over shm, direct, arena buffer: busbw is .* below --min-bw 1e\+06")
        self.assertIn("#wrong", job.stdout)  # the table is shown all the same

    def test_wrong_usage_is_2_and_one_line(self):
        for arguments, says in ((["bench"], "no op"), (["bench", "all_reduc"], "try: all_reduce"),
                                (["bench", "all_reduce", "--min-bq", "1"], "try: --min-bw"),
                                (["bench", "broadcast", "--root", "2"], "--root 2 is outside a world of 2"),
                                (["bench", "all_reduce", "--size", "x"], "--size is 'x'"),
                                (["bench", "all_reduce", "--ranks", "0"], "--ranks is '0'"),
                                (["bench", "p2p", "--ranks", "1"], "there is one rank; try: --ranks 2"),
                                (["compare"], "nothing to compare"), (["compare", "gather"], "cannot compare 'gather'"),
                                (["compare", "allreduce", "--algorithm", "rnig"], "try: ring")):
            with self.subTest(" ".join(arguments)):
                job = self.run_job(*arguments)
                self.assert_code(job, 2)
                self.assertEqual(job.stdout, "")
                self.assertRegex(job.stderr, r"\Alockstep (bench|compare): [^\n]+\n\Z")
                self.assertIn(says, job.stderr)

    def test_help_starts_with_examples(self):
        for verb in ("bench", "compare"):
            job = self.run_job(verb, "--help")
            self.assert_code(job, 0)
            self.assertTrue(job.stdout.startswith("Examples:\n"), job.stdout)


class Endings(BenchCase):
    def test_a_signal_ends_all_ranks(self):
        job = self.start("bench", "all_reduce", "--size", "1M", "--rounds", 1000, "--time", 500, "--no-limits",
                         timeout=30)
        job.pids_of_ranks(2)
        job.wait_for_line("busbw")
        job.signal(signal.SIGTERM)
        job.wait()
        self.assert_code(job, 143)

    def test_a_rank_that_is_killed_ends_it(self):
        job = self.start("bench", "all_reduce", "--size", "1M", "--rounds", 1000, "--time", 500, "--transport",
                         "tcp,shm", timeout=30)
        job.wait_for_line("busbw")
        job.signal_rank(1, signal.SIGKILL)
        job.wait()
        self.assert_code(job, 137)
        self.assertNotIn("1048576", job.stdout)


class AsARank(BenchCase):
    def test_joins_the_world_it_finds(self):
        job = self.run_job("run", "-n", 3, "--", harness.LOCKSTEP, "bench", "all_gather", "--size", "3K", *QUICK, "--json",
                           timeout=60)
        self.assert_code(job, 0)
        document = json.loads(job.stdout.removeprefix("[rank 0] "))
        self.assertEqual([(row["ranks"], row["wrong"]) for row in document["results"]], [(3, 0)])

    def test_another_number_of_ranks_is_refused(self):
        job = self.run_job("run", "-n", 2, "--", harness.LOCKSTEP, "bench", "barrier", "--ranks", 3)
        self.assert_code(job, 2)
        self.assertIn("--ranks 3, but this is a rank of a world of 2", job.stderr)

    def test_under_mpirun(self):
        mpirun = shutil.which("mpirun.openmpi")
        if not mpirun:
            self.skipTest("Open MPI is not installed")
        as_root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        job = self.run_job("--oversubscribe", *as_root, "-n", 2, harness.LOCKSTEP, "bench", "all_reduce", "--size", "64K",
                           *QUICK, "--json", program=mpirun, timeout=60)
        self.assert_code(job, 0)
        self.assertEqual(json.loads(job.stdout)["results"][0]["wrong"], 0)


class Compare(BenchCase):
    def test_says_who_wins_and_why_and_draws_it(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = os.path.join(folder, "chart.svg")
            job = self.run_job("compare", "allreduce", "--ranks", "2,3", "--sizes", "64,16K", "--rounds", 1, "--svg", svg,
                               "--json", timeout=120)
            self.assert_code(job, 0)
            root = xml.etree.ElementTree.parse(svg).getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertEqual((texts.count("ring"), texts.count("direct")), (2, 2))
        comparisons = json.loads(job.stdout)["comparisons"]
        self.assertEqual([(c["ranks"], c["bytes"]) for c in comparisons], [(2, 64), (2, 16384), (3, 64), (3, 16384)])
        for one in comparisons:
            rows = {row["algorithm"]: row for row in one["rows"]}
            self.assertEqual(set(rows), {"naive", "exchange", "tree", "ring", "halving_doubling", "ordered", "direct"})
            self.assertEqual(one["winner"], min(rows, key=lambda name: rows[name]["time_us"]))
            self.assertIn(one["winner"], one["why"])
            for name, row in rows.items():
                self.assertEqual(row["sent"]["messages"], row["formula"]["messages"], f"{name}: {one}")
                # A chunk has at most one element more than the formula's share, in every message.
                self.assertLessEqual(abs(row["sent"]["bytes"] - row["formula"]["bytes"]), 4 * row["sent"]["messages"])

    def test_the_table(self):
        job = self.run_job("compare", "allreduce", "--ranks", 2, "--sizes", "1K", "--rounds", 1, "--transport", "tcp",
                           "--algorithm", "ring,tree", timeout=60)
        self.assert_code(job, 0)
        self.assertIn("all_reduce of 1K over tcp, 2 ranks", job.stdout)
        self.assertRegex(job.stdout, r"(?m)^  ring .* 2 \(2\) .* 1K \(1K\)")
        self.assertRegex(job.stdout, r"(wins|level)")


if __name__ == "__main__":
    harness.main()
