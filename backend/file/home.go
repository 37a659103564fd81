package file

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// rootDir is root's default directory.
const rootDir = "/var/lib/simba"

// DefaultDir is where this user's mutexes are if no directory is named. It goes
// by the user database, not by HOME or XDG variables: a cron job and a login
// shell have to meet. Errors are ErrDefaultDir.
func DefaultDir(ctx context.Context) (string, error) {
	uid := os.Geteuid()
	if uid == 0 {
		return rootDir, nil
	}
	home := ""
	if db, err := os.ReadFile("/etc/passwd"); err == nil {
		home = homeOf(db, uid)
	}
	if home == "" {
		// Users of a directory service are not in the file.
		home = homeOf(getent(ctx, uid), uid)
	}
	if home == "" {
		return "", fmt.Errorf("%w: user %d has no home directory in /etc/passwd and getent knows none: name a directory, as file:///path", ErrDefaultDir, uid)
	}
	return filepath.Join(home, ".local/state/simba"), nil
}

// getent asks the directory service, as long as the context lets it.
func getent(ctx context.Context, uid int) []byte {
	c := exec.Command("getent", "passwd", strconv.Itoa(uid))
	var out bytes.Buffer
	c.Stdout = &out
	if c.Start() != nil {
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = c.Process.Kill() })()
	if c.Wait() != nil {
		return nil
	}
	return out.Bytes()
}

// homeOf finds the home directory of a user in lines of passwd(5).
func homeOf(db []byte, uid int) string {
	lines := bufio.NewScanner(bytes.NewReader(db))
	for lines.Scan() {
		f := strings.Split(lines.Text(), ":")
		if len(f) >= 7 && f[2] == strconv.Itoa(uid) && filepath.IsAbs(f[5]) {
			return filepath.Clean(f[5])
		}
	}
	return ""
}
