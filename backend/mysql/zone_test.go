package mysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// A server whose local time falls back an hour: nothing is early, nothing late.
func TestLocalTimeFallsBack(t *testing.T) {
	t.Parallel()
	var at time.Time
	var m *backendtest.MySQL
	for early := 5 * time.Second; time.Until(at) < 2*time.Second; early *= 2 {
		at = time.Now().Add(early) // the server has to be up by then
		m = backendtest.StartMySQL(t, backendtest.MySQLOptions{TZ: backendtest.FallingBack(t, at)})
	}
	name, root := m.Database(t)
	a := newArena(t, 1500*time.Millisecond, 1500*time.Millisecond)
	local := func() int {
		var hour int
		if err := root.QueryRow("SELECT HOUR(NOW())").Scan(&hour); err != nil {
			t.Fatal(err)
		}
		return hour
	}
	before := local()
	b := open(t, m.URL(name))
	end := a.holding(b)
	// Another mutex, whose owner dies just before.
	const dead, l = "dead/owner", 1500 * time.Millisecond
	time.Sleep(time.Until(at.Add(-l / 2)))
	began := time.Now()
	s := b.Session(dead, lease.Contender{ID: lease.NewID(lease.IDUUID)})
	mine, err := s.Try(t.Context(), lease.TryRequest{Lease: l, TTL: l})
	if err != nil || mine.State != lease.Mine {
		t.Fatalf("%+v, %v", mine, err)
	}
	_ = s.Close()
	until(t, "its successor", func() error {
		ans, err := tryOnce(t, b, dead)
		if err == nil && ans.State != lease.Mine {
			err = fmt.Errorf("%+v", ans)
		}
		return err
	})
	if took := time.Since(began); took < l || took > l+2*time.Second {
		t.Errorf("taken over after %v", took)
	}
	time.Sleep(a.terms.TTL)
	if after := local(); after != (before+23)%24 {
		t.Errorf("it was %d o'clock, it is %d", before, after)
	}
	if n := a.saw(lease.EventClockStep); n != 0 {
		t.Error("the server's clock seems to step")
	}
	if err := end(); err != nil {
		t.Errorf("owner: %v", err)
	}
}
