package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxConfig is far above any file that somebody wrote.
const maxConfig = 1 << 20

// readSmall also returns the mode. It does not hang on a pipe.
func readSmall(path string) ([]byte, fs.FileMode, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, 0, err
	case !info.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%s is not an ordinary file", path)
	case info.Size() > maxConfig:
		return nil, 0, fmt.Errorf("%s is too large", path)
	}
	text, err := os.ReadFile(path)
	return text, info.Mode(), err
}

// writable tells what stands in the way of a replaceFile to come.
func writable(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is there, and is not an ordinary file", path)
	case err == nil || errors.Is(err, fs.ErrNotExist):
		err = unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return &fs.PathError{Op: "write to", Path: path, Err: err}
	}
	return nil
}

// replaceFile writes a file that others see either as it was or as it is. What is there and
// is no ordinary file is left alone: the rename would replace a device, or a link.
func replaceFile(path, text string, mode fs.FileMode) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is there, and is not an ordinary file", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
