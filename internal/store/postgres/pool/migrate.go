package pool

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock of a migration: the bytes of "theclaw".
const migrationLock = 0x746865636c6177

// Migrate brings the tables of the database behind c to the newest format and returns the
// format. Migrations are numbered and only go forward:
//
//	empty --001--> 1 --002--> 2 ...     one transaction each, under one lock
//
// Any number of registries may start at once: one migrates, the others wait for it and
// find nothing to do. A database of a newer format is refused unchanged.
// Errors: FORMAT_MISMATCH for one of a newer build.
func Migrate(ctx context.Context, c *pgx.Conn) (format int, err error) {
	return migrate(ctx, c, true)
}

// migrate is Migrate; unless older, it refuses a database of an older format with
// FORMAT_MISMATCH and changes nothing.
func migrate(ctx context.Context, c *pgx.Conn, older bool) (format int, err error) {
	names, err := fs.Glob(migrations, "migrations/*.sql") // in order: the names are numbers
	if err != nil {
		return 0, err
	}
	if _, err := c.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
		return 0, fmt.Errorf("lock database for migration: %w", err)
	}
	defer func() {
		_, unlock := c.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(migrationLock))
		err = errors.Join(err, unlock)
	}()
	if _, err := c.Exec(ctx, "CREATE TABLE IF NOT EXISTS format (one INT PRIMARY KEY CHECK (one = 1), version INT NOT NULL)"); err != nil {
		return 0, fmt.Errorf("make format table: %w", err)
	}
	if err := c.QueryRow(ctx, "SELECT COALESCE(MAX(version), 0) FROM format").Scan(&format); err != nil {
		return 0, fmt.Errorf("read format: %w", err)
	}
	if format > len(names) {
		return format, fault.New(codes.FailedPrecondition, fault.FormatMismatch,
			fmt.Sprintf("the database has format %d, this build knows %d: a newer version has served it", format, len(names)),
			"use that version, or another database")
	}
	if !older && format > 0 && format < len(names) {
		return format, fault.New(codes.FailedPrecondition, fault.FormatMismatch,
			fmt.Sprintf("the database has format %d, and this build would bring it to %d", format, len(names)),
			"use the version of the registries that serve it, or start one of this version first")
	}
	for ; format < len(names); format++ {
		if err := migrateTo(ctx, c, names[format], format+1); err != nil {
			return format, fmt.Errorf("migrate to format %d: %w", format+1, err)
		}
	}
	return format, nil
}

func migrateTo(ctx context.Context, c *pgx.Conn, name string, to int) error {
	text, err := migrations.ReadFile(name)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, strings.TrimSpace(string(text)), pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO format(one, version) VALUES(1, $1) ON CONFLICT (one) DO UPDATE SET version = excluded.version", to)
		return err
	})
}
