package backendtest

import (
	"bufio"
	"errors"
	"net"
	"testing"
	"time"
)

func TestRelay(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					c.Write(append(lines.Bytes(), '\n'))
				}
			}()
		}
	}()
	r := StartRelay(t, ln.Addr().String())
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", r.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	echo := func(c net.Conn, limit time.Duration) error {
		c.SetDeadline(time.Now().Add(limit))
		if _, err := c.Write([]byte("x\n")); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 2))
		return err
	}
	timedOut := func(err error) bool {
		var e net.Error
		return errors.As(err, &e) && e.Timeout()
	}
	c := dial()
	if err := echo(c, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	r.Set(Blackhole)
	if err := echo(c, 50*time.Millisecond); !timedOut(err) {
		t.Fatal(err)
	}
	r.Set(Pass) // what was held back comes now
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	r.Set(EatReplies)
	if err := echo(c, 50*time.Millisecond); !timedOut(err) {
		t.Fatal(err)
	}
	r.Set(Pass)
	r.Delay(30 * time.Millisecond)
	begun := time.Now()
	if err := echo(c, 5*time.Second); err != nil || time.Since(begun) < 60*time.Millisecond {
		t.Fatal(err, time.Since(begun))
	}
	r.Delay(0)
	if up, down := r.Bytes(); up != 8 || down != 8 {
		t.Error(up, down)
	}
	r.Cut()
	if err := echo(c, 5*time.Second); err == nil || timedOut(err) {
		t.Fatal(err)
	}
	r.Set(Refuse)
	if _, err := net.Dial("tcp", r.Addr); err == nil {
		t.Fatal("it was not refused")
	}
	r.Set(Reset)
	c, err = net.Dial("tcp", r.Addr) // it may come as far as that
	if err == nil {
		t.Cleanup(func() { c.Close() })
		err = echo(c, 5*time.Second)
	}
	if err == nil || timedOut(err) {
		t.Fatal(err)
	}
	r.Set(Pass)
	if err := echo(dial(), 5*time.Second); err != nil {
		t.Fatal(err)
	}
}
