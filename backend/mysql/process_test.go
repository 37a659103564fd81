package mysql_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/mysql"
	"github.com/simba-lock/simba/lease"
)

// waiterEnv makes the test's binary a waiter in a process of its own.
const waiterEnv = "SIMBA_TEST_MYSQL_WAITER"

// asWaiter contends once, says when it got the mutex, and ends.
func asWaiter(url string) int {
	b, err := mysql.Open(url, mysql.Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	cfg := lease.Config{Backend: b, Mutex: mutex, Wait: lease.Forever}
	cfg.Terms, _ = lease.NewTerms(3*time.Second, 3*time.Second, 100*time.Millisecond)
	err = lease.Do(context.Background(), cfg, func(context.Context, *lease.Holder) error {
		fmt.Println("mine")
		return nil
	})
	fmt.Println("end", err)
	return 0
}

type process struct {
	*osexec.Cmd
	lines chan string
}

func waiterProcess(t testing.TB, url string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: osexec.Command(exe), lines: make(chan string, 10)}
	p.Env = append(os.Environ(), waiterEnv+"="+url)
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

func (p *process) says(t testing.TB, lines ...string) {
	t.Helper()
	for _, want := range lines {
		select {
		case line := <-p.lines:
			if line != want {
				t.Errorf("it says %q, not %q", line, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("it never says %q", want)
		}
	}
}
