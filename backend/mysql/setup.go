package mysql

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/simba-lock/simba/lease"
)

// layout is what the tables found take.
type layout struct {
	name, id int // longest, in characters
}

// fits refuses what a column would cut.
func (y *layout) fits(mutex, id string) error {
	switch {
	case len(mutex) > y.name:
		return lease.Permanent(fmt.Errorf("the column simba_mutex.mutex takes names of at most %d characters, this one has %d", y.name, len(mutex)))
	case len(id) > y.id:
		return lease.Permanent(fmt.Errorf("the column simba_mutex.owner_id takes at most %d characters, the id of a contender has %d", y.id, len(id)))
	}
	return nil
}

// columns are those that are asked for something; the JVM's table is not ours,
// and neither is a table that happens to be called simba_lease.
var columns = map[string][]string{
	"simba_mutex": {"mutex", "acquired_at", "ttl_at", "transition_at", "owner_id", "version"},
	"simba_lease": {
		"mutex", "birth", "rev", "fence", "owner_id", "info", "acquired_at", "end_at", "lease_ms", "hold_until",
		"released", "revoked", "promise_id", "promise_until", "promise_version",
		"embargo_id", "embargo_fence", "embargo_until", "embargo_ms", "waiters", "spent", "spent_until",
	},
}

// tables looks the tables up, once, and makes those that are missing.
func (b *Backend) tables(ctx context.Context, l *line) (*layout, error) {
	if y := b.layout.Load(); y != nil {
		return y, nil
	}
	select {
	case b.making <- struct{}{}:
		defer func() { <-b.making }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if y := b.layout.Load(); y != nil {
		return y, nil
	}
	y, missing, err := found(ctx, l)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		statements := creating(missing)
		for i, create := range statements {
			if _, err := l.write(ctx, create); err != nil {
				if refused[number(err)] {
					return nil, lease.Permanent(fmt.Errorf("%w; somebody with the right to has to run this once:\n%s",
						err, strings.Join(statements[i:], "\n")))
				}
				return nil, err
			}
		}
		if y, missing, err = found(ctx, l); err != nil {
			return nil, err
		}
		if len(missing) > 0 {
			return nil, lease.Permanent(fmt.Errorf("no right to use the table %s", strings.Join(missing, ", ")))
		}
	}
	if !b.deaf.Load() {
		if err := b.probe(ctx, l); err != nil {
			return nil, err
		}
	}
	b.layout.Store(y)
	return y, nil
}

// creating are the statements that make so many of the tables.
func creating(tables []string) []string {
	var out []string
	for create := range strings.SplitSeq(Schema(), ";") {
		create = strings.TrimSpace(create)
		for _, t := range tables {
			if strings.HasPrefix(create, "CREATE TABLE IF NOT EXISTS "+t+" ") {
				out = append(out, create+";")
			}
		}
	}
	return out
}

// found reads what there is of the two tables.
func found(ctx context.Context, l *line) (y *layout, missing []string, err error) {
	rows, err := l.conn.QueryContext(ctx, `SELECT LOWER(table_name), LOWER(column_name), COALESCE(character_maximum_length, 0)
		FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name IN ('simba_mutex', 'simba_lease')`)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = rows.Close() }()
	length := make(map[string]int)
	seen := make(map[string]bool)
	for rows.Next() {
		var table, column string
		var n uint32
		if err := rows.Scan(&table, &column, &n); err != nil {
			return nil, nil, err
		}
		seen[table] = true
		length[table+"."+column] = int(n)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, err
	}
	for _, table := range []string{"simba_mutex", "simba_lease"} {
		if !seen[table] {
			missing = append(missing, table)
			continue
		}
		for _, column := range columns[table] {
			if _, ok := length[table+"."+column]; !ok {
				return nil, nil, lease.Permanent(fmt.Errorf("the table %s has no column %s: it is not Simba's", table, column))
			}
		}
	}
	return &layout{name: length["simba_mutex.mutex"], id: length["simba_mutex.owner_id"]}, missing, nil
}

// probe finds out whether the server lends its locks. One that says an error or
// NULL to this, as a proxy or a cluster may, has no doorbells.
func (b *Backend) probe(ctx context.Context, l *line) error {
	var got *int
	name := "simba:probe:" + token()
	err := l.one(ctx, "SELECT IF(GET_LOCK(?, 0), RELEASE_LOCK(?), 0)", []any{name, name}, &got)
	if n := number(err); n != 0 && !deposed[n] && !passing[n] {
		b.deaf.Store(true)
		return nil
	}
	if err == nil && (got == nil || *got != 1) {
		b.deaf.Store(true)
	}
	return err
}

// rows makes the rows of a mutex. That others do so at the same time is no
// error, and no row stays locked: each statement is its own transaction.
func rows(ctx context.Context, l *line, mutex string, v *view) error {
	if !v.hasMutex {
		if err := l.insert(ctx, `INSERT INTO simba_mutex (mutex, acquired_at, ttl_at, transition_at, owner_id, version)
			VALUES (?, 0, 0, 0, '', 0)`, mutex); err != nil {
			return err
		}
	}
	if !v.hasLease {
		return l.insert(ctx, `INSERT INTO simba_lease (mutex, birth, info, waiters, spent)
			VALUES (?, ?, '{}', '', '')`, mutex, token())
	}
	return nil
}

const tokenBytes = 12

func token() string {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}
