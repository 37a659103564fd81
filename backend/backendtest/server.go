package backendtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// minder starts a program, says its pid, and kills it as soon as the test's
// process is gone, however that ended.
const minder = `"$@" >"$LOG" 2>&1 & echo $!; read end; kill -9 $! 2>/dev/null; wait`

// Server is a program that a test started for itself.
type Server struct {
	t      testing.TB
	argv   []string
	log    string
	ready  func() error
	pid    int
	minder *exec.Cmd
	stdin  io.Closer
}

// StartServer starts a program and waits until ready has no error. It ends with
// the test. A program that is missing fails the test with the Debian package
// that has it.
func StartServer(t testing.TB, pkg string, ready func() error, argv ...string) *Server {
	t.Helper()
	s := &Server{t: t, argv: argv, ready: ready}
	if _, err := exec.LookPath(argv[0]); err != nil {
		t.Fatalf("%s is missing: apt-get install %s", argv[0], pkg)
	}
	s.log = filepath.Join(t.TempDir(), "log")
	t.Cleanup(s.Kill)
	s.start()
	return s
}

func (s *Server) start() {
	s.t.Helper()
	s.minder = exec.Command("sh", append([]string{"-c", minder, "sh"}, s.argv...)...)
	s.minder.Env = append(os.Environ(), "LOG="+s.log)
	in, err := s.minder.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := s.minder.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.stdin = in
	if err := s.minder.Start(); err != nil {
		s.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	if s.pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		s.t.Fatal(err)
	}
	err = Eventually(20*time.Second, func() error {
		if s.signal(0) != nil {
			return fmt.Errorf("it has ended")
		}
		return s.ready()
	})
	if err != nil {
		text, _ := os.ReadFile(s.log)
		s.t.Fatalf("%s does not start: %v\n%s", s.argv[0], err, text)
	}
}

// Pid is its process id.
func (s *Server) Pid() int { return s.pid }

func (s *Server) signal(sig syscall.Signal) error {
	if s.pid == 0 {
		return os.ErrProcessDone
	}
	return syscall.Kill(s.pid, sig)
}

// Stop freezes it, Cont lets it go on.
func (s *Server) Stop() { _ = s.signal(syscall.SIGSTOP) }
func (s *Server) Cont() { _ = s.signal(syscall.SIGCONT) }

// Kill ends it as a crash does, and returns when it is gone.
func (s *Server) Kill() {
	if s.pid == 0 {
		return
	}
	_ = s.signal(syscall.SIGKILL)
	_ = s.stdin.Close()
	_ = s.minder.Wait()
	s.pid = 0
}

// Restart starts it again with the same arguments.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.start()
}

// Eventually calls f until it has no error, and returns its last one.
func Eventually(limit time.Duration, f func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		err := f()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// FreePort is a TCP port of loopback that nobody used a moment ago.
func FreePort(t testing.TB) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().(*net.TCPAddr).Port
}
