package console

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// run executes a program with one flag, whose end is err.
func run(ctx context.Context, err error, args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	p := New("test", "Test shows how a program ends, in one line that says what it is for.")
	n := p.Flags.Int("n", 7, "how many of `things` there are, said in so many words that one line of a terminal cannot hold them")
	status = p.exec(ctx, args, &o, &e, func(_ context.Context, out io.Writer) error {
		io.WriteString(out, strings.Repeat("x", *n))
		return err
	})
	return status, o.String(), e.String()
}

// TestEnds: each way to end a program has its exit status, and the error is on the other output.
func TestEnds(t *testing.T) {
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(stopped{os.Interrupt})
	killed, kill := context.WithCancelCause(t.Context())
	kill(stopped{syscall.SIGTERM})
	for _, c := range []struct {
		name   string
		ctx    context.Context
		err    error
		args   []string
		status int
		out    string
		errs   string
	}{
		{name: "well", ctx: t.Context(), args: []string{"-n", "3"}, out: "xxx"},
		{name: "an error", ctx: t.Context(), err: errors.New("it broke"), status: 1, out: "xxxxxxx", errs: "test: it broke\n"},
		{name: "Ctrl-C", ctx: gone, err: context.Canceled, status: 130, out: "xxxxxxx", errs: "test: interrupted\n"},
		{name: "Ctrl-C at the end", ctx: gone, status: 130, out: "xxxxxxx", errs: "test: interrupted\n"},
		{name: "SIGTERM", ctx: killed, err: context.Canceled, status: 143, out: "xxxxxxx", errs: "test: terminated\n"},
		{name: "no such flag", ctx: t.Context(), args: []string{"-m"}, status: 2, errs: "test: flag provided but not defined: -m; -h lists the flags\n"},
		{name: "no flag", ctx: t.Context(), args: []string{"m"}, status: 2, errs: "test: unknown argument \"m\"; -h lists the flags\n"},
	} {
		if status, out, errs := run(c.ctx, c.err, c.args...); status != c.status || out != c.out || errs != c.errs {
			t.Errorf("%s: %d, %q, %q", c.name, status, out, errs)
		}
	}
}

// TestMain: the process that TestSignals starts is the test binary again. It runs until it is stopped.
func TestMain(m *testing.M) {
	if os.Getenv("CONSOLE_TEST_PROGRAM") == "" {
		os.Exit(m.Run())
	}
	New("test", "").Main(func(ctx context.Context, out io.Writer) error {
		io.WriteString(out, "ready\n")
		<-ctx.Done()
		io.WriteString(out, "so far\n")
		return ctx.Err()
	})
}

// TestSignals: a program that runs until it is stopped ends with what there is, a word, and the status that says by what.
func TestSignals(t *testing.T) {
	for s, want := range map[os.Signal]struct {
		word   string
		status int
	}{os.Interrupt: {"test: interrupted\n", 130}, syscall.SIGTERM: {"test: terminated\n", 143}} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "CONSOLE_TEST_PROGRAM=1")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		if first, err := lines.ReadString('\n'); first != "ready\n" {
			t.Fatalf("%q, %v", first, err)
		}
		if err := cmd.Process.Signal(s); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Skip("skipped: ", err) // where there are no signals
		}
		rest, _ := io.ReadAll(lines)
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != want.status || errs.String() != want.word || string(rest) != "so far\n" {
			t.Errorf("%v: status %d, %q, %q; want %d, %q", s, got, rest, &errs, want.status, want.word)
		}
	}
}

// TestHelp: -h says in a line each what the program is for and how to run it, and is no wider than asked.
func TestHelp(t *testing.T) {
	for _, columns := range []string{"80", "30", "300"} {
		t.Setenv("COLUMNS", columns)
		status, out, errs := run(t.Context(), nil, "-h")
		if status != 0 || errs != "" {
			t.Errorf("%d, %q", status, errs)
		}
		checkWidth(t, out, Columns())
		words := strings.Join(strings.Fields(out), " ")
		want := "Test shows how a program ends, in one line that says what it is for. Usage: go run ./examples/test [flags] " +
			"-n things how many of things there are,"
		if !strings.HasPrefix(words, want) || !strings.HasSuffix(words, "(default 7)") {
			t.Errorf("%s columns:\n%s", columns, out)
		}
	}
}

// TestPurpose: what the programs are for fits one line, and each of them can be run in brief.
func TestPurpose(t *testing.T) {
	files, err := filepath.Glob("../../*/main.go")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	call := regexp.MustCompile(`(?:console\.New|sides\.Main)\("(\w+)", "(.*?)"[,)]`)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		m := call.FindSubmatch(text)
		if m == nil || len(m[2]) > 80 || string(m[1]) != filepath.Base(filepath.Dir(name)) {
			t.Errorf("%s: %q, want its name and a line of at most 80 columns", name, m)
		}
		if !regexp.MustCompile(`"brief"|sides\.Main`).Match(text) || !regexp.MustCompile(`(?m)^//\t-brief `).Match(text) {
			t.Errorf("%s: it has no flag -brief, or does not say so", name)
		}
	}
}

func TestColumns(t *testing.T) {
	for text, want := range map[string]int{"": 80, "nonsense": 80, "-1": 80, "5": 20, "60": 60, "200": 80} {
		t.Setenv("COLUMNS", text)
		if got := Columns(); got != want && text != "" { // a terminal may have its say
			t.Errorf("COLUMNS=%q: %d, want %d", text, got, want)
		}
	}
}

// checkWidth checks that no line is wider.
func checkWidth(t *testing.T, text string, columns int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > columns {
			t.Errorf("%d columns of %d: %s", n, columns, line)
		}
	}
}

// TestPrint: the table is turned where it is too wide, then becomes a list. No word is broken or lost.
func TestPrint(t *testing.T) {
	rows := [][]string{{"client", "wall time", "the first failure"}, {"bare", "1.00 s", "none at all"}, {"throttled", "10.00 s", "-"}}
	for _, c := range []struct {
		columns int
		want    string
	}{
		{41, "client      wall time   the first failure\nbare           1.00 s         none at all\nthrottled     10.00 s                   -\n"},
		{40, "client: bare\nwall time: 1.00 s\nthe first failure: none at all\n"}, // turned it has more
		{30, "client: bare\nwall time: 1.00 s\nthe first failure: none at all\n\nclient: throttled\n"},
		{20, "client: bare\nwall time: 1.00 s\nthe first failure:\n  none at all\n\nclient: throttled\n"},
	} {
		var b bytes.Buffer
		if err := Print(&b, c.columns, true, rows); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(b.String(), c.want) {
			t.Errorf("%d columns:\n%s\nwant\n%s", c.columns, &b, c.want)
		}
		checkWidth(t, b.String(), c.columns)
	}
	var b bytes.Buffer
	wide := [][]string{{"a long head", "another long head"}, {"1", "2"}}
	if err := Print(&b, 24, true, wide); err != nil || b.String() != "a long head         1\nanother long head   2\n" {
		t.Errorf("turned:\n%s", &b)
	}
}

func TestFill(t *testing.T) {
	got := strings.Split(Fill("  one two three fourteenlong é é é", 9, "    "), "\n")
	if want := []string{"  one two", "    three", "    fourteenlong", "    é é é"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
