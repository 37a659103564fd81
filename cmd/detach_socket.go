package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/simba-lock/simba/lease"
)

// A keeper listens at a socket in a directory that is its user's alone. Both sides look
// who is at the other end; what is asked names the owner's id, so a keeper that came later
// under the same name answers for nothing.

// request is what renew, check and release want of a keeper.
type request struct {
	Owner     string
	Op        string // renew, check, release
	TTL, Rest time.Duration
	Within    time.Duration // renew: how long the store may take
}

// answer is what a keeper says.
type answer struct {
	Owner string
	Held  bool
	Why   string // if it is not held
	// Unknown: it was to be renewed, and the store has not confirmed that. Why.
	Unknown string `json:",omitempty"`
	// Remaining, of the ttl and of the whole lease; lease.Forever as long as the
	// process that is watched lives.
	TTL, Lease time.Duration
}

const (
	askRenew, askCheck, askRelease = "renew", "check", "release"

	// answersWithin: a keeper has nothing else to do.
	answersWithin = 2 * time.Second
	// shortPath is what fits into the address of a socket everywhere.
	shortPath = 100
	// staleAfter is far longer than a keeper needs between making its socket and listening.
	staleAfter  = 10 * time.Second
	socketNames = ".sock"
)

var (
	errNoKeeper = errors.New("the process that keeps the lease cannot be reached")
	errDead     = errors.New("the process that kept the lease is gone")
	errApart    = errors.New("the process that keeps the lease belongs to another user")
	errSilent   = errors.New("the process that keeps the lease does not answer")
)

// socketDir finds or makes a directory for sockets into which nobody else gets.
func socketDir() (string, error) {
	var dirs []string
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		dirs = append(dirs, filepath.Join(dir, "simba"))
	}
	if os.Geteuid() == 0 {
		dirs = append(dirs, "/run/simba", "/var/run/simba")
	}
	if u, err := user.Current(); err == nil && filepath.IsAbs(u.HomeDir) {
		state := filepath.Join(u.HomeDir, ".local/state")
		_ = os.MkdirAll(state, 0o700)
		dirs = append(dirs, filepath.Join(state, "simba-keepers"))
	}
	var why []error
	for _, dir := range dirs {
		err := makePrivate(dir)
		if err == nil {
			return dir, nil
		}
		why = append(why, err)
	}
	return "", fmt.Errorf("no private directory to be reached at (XDG_RUNTIME_DIR may name one): %w", errors.Join(why...))
}

func makePrivate(dir string) error {
	if err := owned(filepath.Dir(dir), 0o022, true); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return owned(dir, 0o077, false)
}

// owned makes sure that a directory is this user's (or root's), and that none of the
// modes is set.
func owned(dir string, modes fs.FileMode, orRoot bool) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case !ok || int(st.Uid) != os.Geteuid() && !(orRoot && st.Uid == 0):
		return fmt.Errorf("%s belongs to somebody else", dir)
	case info.Mode().Perm()&modes != 0:
		return fmt.Errorf("the mode %#o of %s lets others in", info.Mode().Perm(), dir)
	}
	return nil
}

// sweepSockets removes what keepers left that were killed.
func sweepSockets(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || !strings.HasSuffix(e.Name(), socketNames) || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		c, err := dial(context.Background(), path)
		if err == nil {
			_ = c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

// dial connects to a socket, also where its path is too long for an address.
func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	if len(path) > shortPath {
		if err := os.Chdir(filepath.Dir(path)); err != nil {
			return nil, err
		}
		path = filepath.Base(path)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// listen makes the socket. The caller's working directory is / afterwards.
func listen(dir, name string) (*net.UnixListener, error) {
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	return l, os.Chdir("/")
}

// dead tells whether the keeper has ended, as far as that can be seen from here.
func (k *keeperAt) dead() bool {
	if k.Host != lease.Host() || k.World != world() {
		return false
	}
	now, err := findProcess(k.PID)
	return err != nil || now.Started != k.Started
}

// ask asks the keeper of a lease, within limit. errNoKeeper: nobody listens there any
// more, errSilent: there is no answer, errApart: it is not for us to ask.
func (t *token) ask(ctx context.Context, r request, limit time.Duration) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := dial(ctx, t.Keeper.Socket)
	switch {
	case ctx.Err() != nil, errors.Is(err, syscall.EAGAIN): // a queue that nobody serves
		return a, errSilent
	case errors.Is(err, fs.ErrPermission):
		return a, errApart
	case err != nil:
		return a, fmt.Errorf("%w (%w)", errNoKeeper, err)
	}
	defer func() { _ = c.Close() }()
	if uid, err := peerUID(c); err != nil || uid != os.Geteuid() {
		return a, errApart
	}
	end, _ := ctx.Deadline()
	_ = c.SetDeadline(end)
	r.Owner = t.Owner
	if err := json.NewEncoder(c).Encode(r); err != nil {
		return a, errNoKeeper
	}
	err = json.NewDecoder(c).Decode(&a)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return a, errSilent
	case err != nil:
		return a, fmt.Errorf("%w (%w)", errNoKeeper, err)
	case a.Owner != t.Owner:
		return a, errNoKeeper
	}
	return a, nil
}
