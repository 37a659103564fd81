package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// defaultPath is searched when the environment has no PATH, as by the C library.
	defaultPath = "/bin:/usr/bin"
	// headSize is how much of a script's first line the kernel looks at.
	headSize = 256
	// maxInterpreters is how many scripts may interpret each other before the kernel gives up.
	maxInterpreters = 5
)

// Find resolves a command as execvp would, with the PATH in env (the last one, if there are several). It is
// meant to be called before any mutex is asked for. path and fullArgv are what [Order] wants; they differ
// from argv for a script without #!, which /bin/sh runs. Errors name the command and match [ErrNotFound] or
// [ErrNotRunnable].
func Find(argv []string, env []string) (path string, fullArgv []string, err error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", nil, fmt.Errorf("%w: %q", ErrNotFound, "")
	}
	name := argv[0]
	if path, err = lookUp(name, env); err != nil {
		return "", nil, err
	}
	shell, err := checkImage(name, path, maxInterpreters)
	if err != nil {
		return "", nil, err
	}
	if shell {
		return "/bin/sh", append([]string{"/bin/sh", path}, argv[1:]...), nil
	}
	return path, argv, nil
}

func lookUp(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, commandError(name, runnable(name))
	}
	search := defaultPath
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			search = value
		}
	}
	if search == "" {
		return "", commandError(name, syscall.ENOENT) // nowhere, and not in the working directory
	}
	var refused error
	for _, dir := range strings.Split(search, ":") {
		if dir == "" {
			dir = "."
		}
		// Not Join: "./name" must keep its slash, or exec would be asked for a bare name.
		candidate := dir + "/" + name
		switch err := runnable(candidate); {
		case err == nil:
			return candidate, nil
		case !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ENOTDIR) && refused == nil:
			// execvp goes on searching, and tells of this one only if there is no other.
			refused = err
		}
	}
	if refused != nil {
		return "", commandError(name, refused)
	}
	return "", commandError(name, syscall.ENOENT)
}

func runnable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	if !info.Mode().IsRegular() {
		return syscall.EACCES
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

// checkImage looks at the first bytes of an executable: whether its interpreter exists, and whether it is
// text without one, which the kernel refuses and a shell must run. A file that cannot be read is left to
// the kernel.
func checkImage(name, path string, depth int) (shell bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	head := make([]byte, headSize)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	head = head[:n]
	line, isScript := bytes.CutPrefix(head, []byte("#!"))
	if !isScript {
		// A NUL marks something that is not text: a native image, or one that binfmt_misc knows.
		return bytes.IndexByte(head, 0) < 0, nil
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) == 0 {
		return true, nil
	}
	interpreter := string(fields[0])
	if err := runnable(interpreter); err != nil {
		return false, fmt.Errorf("%w: %s: bad interpreter %s: %w", ErrNotRunnable, shown(name), shown(interpreter), bare(err))
	}
	if depth <= 1 {
		return false, fmt.Errorf("%w: %s: %w", ErrNotRunnable, shown(name), syscall.ELOOP)
	}
	// If the interpreter is itself text without #!, the kernel refuses and execvp falls back to a shell.
	return checkImage(name, interpreter, depth-1)
}

// commandError gives an error of stat or exec the sentinel of its exit status, as env(1) and shells sort them.
func commandError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("%w: %s", ErrNotFound, shown(name))
	default:
		return fmt.Errorf("%w: %s: %w", ErrNotRunnable, shown(name), bare(err))
	}
}

// bare takes the path and operation off an error; the message names the command already.
func bare(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// shown is a name that may hold anything, as part of a message of one line.
func shown(name string) string {
	if q := strconv.Quote(name); q != `"`+name+`"` {
		return q
	}
	return name
}
