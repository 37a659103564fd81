package mysql

import (
	"context"
	"errors"
	"fmt"

	"github.com/simba-lock/simba/lease"
)

// addCheckpoint brings a table of an earlier version up to date. Nothing but
// checkpoints needs the column, so nobody else looks for it.
const addCheckpoint = "ALTER TABLE simba_lease ADD COLUMN checkpoint varchar(512) CHARACTER SET ascii COLLATE ascii_bin NULL" +
	" COMMENT 'what owners leave to those after them'"

// errPutBack: the owner's next renewal puts the row back.
var errPutBack = errors.New("the row of the mutex was deleted, and is not put back yet")

// Checkpoint is [lease.Session.Checkpoint].
//
// One statement compares, sets, and makes sure of the ownership, so a text is written
// by an owner only, also if the statement arrives late; and what it wrote is said by
// the reading that follows if its own answer was lost. It goes over a connection of the
// readers': the session's own may be under way with a renewal, and the doorbell's waits.
func (s *session) Checkpoint(ctx context.Context, from, to string) (text string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.done, cancel)()
	err = s.b.reading(ctx, func(l *line) error {
		text, err = s.checkpoint(ctx, l, from, to)
		switch {
		case number(err) == unknownColumn:
			if err = s.b.addCheckpoint(ctx, l); err == nil {
				text, err = s.checkpoint(ctx, l, from, to)
			}
		case number(err) == noSuchTable && s.b.layout.Load() == nil:
			return lease.ErrNotOwner // nobody ever was
		}
		return s.b.missing(err)
	})
	return text, err
}

func (s *session) checkpoint(ctx context.Context, l *line, from, to string) (string, error) {
	values := args{"mutex": s.mutex, "me": s.id, "from": from, "to": to}
	for range rounds {
		if from != to {
			done, _, err := l.exec(ctx, setTextSQL, values)
			if err != nil {
				return "", err
			}
			if done {
				return to, nil
			}
		}
		var text string
		var owner, told bool
		if err := l.one(ctx, textSQL().text, textSQL().values(values), &text, &owner, &told); err != nil {
			return "", err
		}
		switch {
		case !owner:
			return "", lease.ErrNotOwner
		case text != from || from == to:
			return text, nil
		case !told:
			return "", errPutBack
		}
		// The row was put back between the two statements.
	}
	return "", errPutBack
}

// addCheckpoint makes the column. That another contender was quicker is no error.
func (b *Backend) addCheckpoint(ctx context.Context, l *line) error {
	_, err := l.write(ctx, addCheckpoint)
	switch n := number(err); {
	case n == duplicateColumn:
		return nil
	case refused[n]:
		return lease.Permanent(fmt.Errorf("%w; the table is of an earlier version, and somebody with the right to has to run this once:\n%s;",
			err, addCheckpoint))
	}
	return err
}
