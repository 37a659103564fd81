package guard

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A job finds what the wrapper was started with, and nothing of the wrapper's own.
func TestInherited(t *testing.T) {
	r, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer other.Close()
	const script = `ls /proc/self/fd | sort -n | tr '\n' ' '; echo; umask; ulimit -Sn; grep -E 'Sig(Ign|Blk)' /proc/self/status
tr '\0' '\n' < /proc/self/environ | grep -c WRAP_NOTHING; pwd; nice; echo "$1|$2|$3"; exec 7>&-; echo via3 >&3; ps -o pgid= -p $$ | tr -d ' '; cat`
	// Around the wrapper is a shell that sets things up; run directly, the same job shows what to expect.
	setup := `trap '' HUP INT; umask 027; ulimit -Sn 256; exec 7</dev/null; cd /tmp; exec "$@"`
	results := map[string]string{}
	for _, how := range []string{"direct", "wrapped"} {
		argv := []string{"-c", setup, "setup"}
		w := prepare(t, nil)
		if how == "wrapped" {
			argv = append(argv, "/proc/self/exe")
			argv[len(argv)-1], _ = os.Executable()
		} else {
			w.cmd.Env = os.Environ()
		}
		argv = append(argv, "sh", "-c", script, "job", "a b", "", "*\n-v")
		w.cmd.Path, w.cmd.Args = lookPath(t, "bash"), append([]string{"bash"}, argv...)
		w.cmd.Stdin = strings.NewReader("data from stdin")
		w.cmd.ExtraFiles = []*os.File{other}
		w.cmd.SysProcAttr = nil
		w.start()
		line := make([]byte, 16)
		n, _ := r.Read(line)
		if ws := w.wait(); ws.ExitStatus() != 0 {
			t.Errorf("%s: %v %s", how, ws, w.err.String())
		}
		results[how] = w.out.String() + string(line[:n])
		w.allGone()
	}
	group := fmt.Sprint(unix.Getpgrp())
	if results["direct"] != results["wrapped"] || !strings.Contains(results["wrapped"], "\n"+group+"\n") {
		t.Errorf("direct:\n%s\nwrapped:\n%s", results["direct"], results["wrapped"])
	}
}

// A reader of the job's output sees its end when the job closes it, and loses nothing.
func TestPipeline(t *testing.T) {
	t.Run("end of file while the job runs", func(t *testing.T) {
		w := prepare(t, nil, "sh", "-c", "echo out; exec >&- 2>&-; sleep 1000")
		w.cmd.Stdout = nil
		pipe, err := w.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.sweep)
		w.pid = w.cmd.Process.Pid
		read := make(chan string, 1)
		go func() {
			b, _ := io.ReadAll(pipe)
			read <- string(b)
		}()
		select {
		case s := <-read:
			if s != "out\n" {
				t.Errorf("read %q", s)
			}
		case <-time.After(patient):
			t.Error("no end of file")
		}
		unix.Kill(w.pid, unix.SIGKILL)
		w.cmd.Wait()
		w.allGone()
	})
	t.Run("everything arrives", func(t *testing.T) {
		w := launch(t, nil, "sh", "-c", "head -c 8000000 /dev/zero; head -c 100000 /dev/zero >&2; exit 7")
		if ws := w.wait(); ws.ExitStatus() != 7 || w.out.Len() != 8000000 || strings.Count(w.err.String(), "\x00") != 100000 {
			t.Errorf("%v, %d and %d bytes", ws, w.out.Len(), w.err.Len())
		}
	})
	t.Run("a straggler does not hold the wrapper", func(t *testing.T) {
		w := launch(t, nil, "sh", "-c", "sleep 1000 & exit 3")
		began := time.Now()
		if ws := w.wait(); ws.ExitStatus() != 3 || time.Since(began) > 5*time.Second {
			t.Errorf("%v after %v", ws, time.Since(began))
		}
	})
}

// With all its output closed the wrapper goes on watching.
func TestClosedOutput(t *testing.T) {
	w := prepare(t, []string{"STOP=3000", "KILL=3500", "RENEW=50"}, "sh", "-c", "sleep 4; exit 5")
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.cmd.Stdout, w.cmd.Stderr = pipe, pipe
	w.start()
	pipe.Close()
	r.Close() // every write is EPIPE from here
	if ws := w.wait(); ws.ExitStatus() != 5 {
		t.Errorf("ended with %v", ws)
	}
	w.allGone()
}

func TestAsPID1(t *testing.T) {
	flags := []string{"-pf", "--mount-proc"}
	if os.Getuid() != 0 {
		flags = append(flags, "-Ur")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(script string) *wrap {
		w := prepare(t, nil)
		w.cmd.Path, w.cmd.Args = lookPath(t, "unshare"), append(append([]string{"unshare"}, flags...), self, "sh", "-c", script)
		return w.start()
	}
	t.Run("orphans", func(t *testing.T) {
		w := run(`(sleep 0.2 &); (setsid sleep 0.2 &); sleep 0.6; ps -e -o stat=,comm= | grep -c '^Z'; exit 5`)
		if ws := w.wait(); ws.ExitStatus() != 5 || strings.TrimSpace(w.out.String()) != "0" {
			t.Errorf("%v; zombies: %q; %s", ws, w.out.String(), w.err.String())
		}
	})
	t.Run("TERM", func(t *testing.T) {
		w := run(`trap 'exit 9' TERM; while :; do sleep 0.02; done`)
		w.await("started")
		for _, pid := range children(w.pid) { // the wrapper, seen from outside
			until(t, "the trap", func() bool { return len(marked(w.mark)) >= 4 })
			unix.Kill(pid, unix.SIGTERM)
		}
		if ws := w.wait(); ws.ExitStatus() != 9 {
			t.Errorf("%v %s", ws, w.lines())
		}
	})
	t.Run("dies of a signal", func(t *testing.T) {
		w := run(`kill -TERM $$`)
		if ws := w.wait(); ws.ExitStatus() != 128+15 {
			t.Errorf("%v %s", ws, w.lines())
		}
	})
}

// As PID 1 a wrapper inherits orphans that are none of its job's.
func TestStrangersOrphansAreReaped(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("only root can enter the namespace")
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := prepare(t, nil)
	w.cmd.Path, w.cmd.Args = lookPath(t, "unshare"), []string{"unshare", "-pf", "--mount-proc", self, "sleep", "1000"}
	w.start()
	w.await("started")
	wrapper := children(w.pid)[0]
	enter := exec.Command("nsenter", "-t", fmt.Sprint(wrapper), "-p", "-m", "sh", "-c", "(sleep 0.1 &)")
	if out, err := enter.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	until(t, "an orphan", func() bool { return len(children(wrapper)) > 1 })
	until(t, "its end", func() bool { return len(children(wrapper)) == 1 })
	unix.Kill(wrapper, unix.SIGTERM)
	w.wait()
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("text", "echo text $1\n", 0o755)
	write("script", "#!/bin/sh\necho script $1\n", 0o755)
	write("options", "#! /bin/sh -e\necho options $1\n", 0o755)
	write("orphan", "#!/nonexistent/sh\n", 0o755)
	write("nested", "#!"+dir+"/script\n", 0o755)
	write("loop", "#!"+dir+"/loop\n", 0o755)
	write("noexec", "#!/bin/sh\n", 0o644)
	write("binary", "\x7fELF\x00garbage", 0o755)
	write("empty", "", 0o755)
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/nonexistent:" + dir + ":/bin:/usr/bin"}
	for _, test := range []struct {
		name   string
		status int
		output string
	}{
		{"text", 0, "text a b\n"},
		{"script", 0, "script a b\n"},
		{"options", 0, "options a b\n"},
		{dir + "/text", 0, "text a b\n"},
		{"nested", 0, "script " + dir + "/nested\n"},
		{"empty", 0, ""},
		{"echo", 0, "a b\n"},
		{"orphan", 126, ""},
		{"loop", 126, ""},
		{"noexec", 126, ""},
		{"folder", 126, ""},
		{dir + "/folder", 126, ""},
		{dir, 126, ""},
		{"missing", 127, ""},
		{dir + "/missing", 127, ""},
		{"/etc/passwd/x", 126, ""},
		{"", 127, ""},
		{"binary", -126, ""}, // only exec can tell
	} {
		path, argv, err := Find([]string{test.name, "a b"}, env)
		if test.status > 0 {
			if err == nil || findStatus(err) != test.status || !strings.Contains(err.Error(), test.name) {
				t.Errorf("%q: %v, want %d", test.name, err, test.status)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", test.name, err)
			continue
		}
		out, err := (&exec.Cmd{Path: path, Args: argv, Env: env}).Output()
		if failed := err != nil; failed != (test.status != 0) || string(out) != test.output {
			t.Errorf("%q: %q, %v", test.name, out, err)
		}
	}
	if _, _, err := Find(nil, env); findStatus(err) != 127 {
		t.Error(err)
	}
	if path, _, err := Find([]string{"sh"}, nil); err != nil || !strings.HasSuffix(path, "bin/sh") {
		t.Errorf("without PATH: %q, %v", path, err)
	}
}
