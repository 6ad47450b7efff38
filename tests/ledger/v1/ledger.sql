PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES('ledger_id','018ebe6179345d832a8613ef64a6bf6d');
CREATE TABLE session(
       no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
       first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
       open_holds INTEGER NOT NULL, held INTEGER NOT NULL) STRICT;
INSERT INTO session VALUES(1,'ses_vonevonevonevonevonevonevo',1,18,0,0);
CREATE TABLE entry(
       seq INTEGER PRIMARY KEY, session INTEGER NOT NULL, at INTEGER NOT NULL,
       body TEXT NOT NULL, hash BLOB NOT NULL) STRICT;
INSERT INTO entry VALUES(1,1,1796040000000000000,'{"entry":"opened","cap":2000,"on_cap":"clamp","pricing_digest":"d1","argv0":"claude","version":"0.1.0","resumed":false}',X'a3dfb47a38b7a610f7cb5ae518e87a5ed42ee2317cca06c27cfc6db951cdca15');
INSERT INTO entry VALUES(2,1,1796040000000000000,'{"entry":"held","request":"req_bbbbbbbbbbbbbbbbbbbbbbbbbb","facts":{"at":"2026-11-30T12:00:00Z","stream":true,"model":"claude-opus-5","max_tokens_asked":1000},"arrival":1,"max_tokens_sent":1000,"amount":500}',X'4ac442a3079a851bd4606f5ca78f44b9593dcd71de494b5c0a42550f6f6e058f');
INSERT INTO entry VALUES(3,1,1796040000000000000,'{"entry":"held","request":"req_aaaaaaaaaaaaaaaaaaaaaaaaaa","facts":{"at":"2026-11-30T12:00:00Z","stream":true,"model":"claude-opus-5","max_tokens_asked":1000},"arrival":0,"max_tokens_sent":1000,"amount":600}',X'd4a63509df651b015ba41ed9dfa85352d21a81afb08e48fc8a9cfb9b5f53c8b9');
INSERT INTO entry VALUES(4,1,1796040000000000000,'{"entry":"settled","request":"req_aaaaaaaaaaaaaaaaaaaaaaaaaa","charged":27,"free":false,"lines":[{"model":"claude-opus-5","item":"input","count":10,"pico_per_unit":1,"pico_usd":10},{"model":"claude-opus-5","item":"output","count":4,"pico_per_unit":4,"pico_usd":16},{"model":"claude-opus-5","item":"web_search","count":1,"pico_per_unit":1,"pico_usd":1}],"end":{"status":200,"served_model":"claude-opus-5","usage":{"input_tokens":10,"output_tokens":4},"upstream_request_id":"req_011","ttfb_ms":12,"duration_ms":34,"client_gone":true,"stop_reason":"end_turn"},"note":"odd"}',X'40ce56d9006b60963b21dc2c91a4ffdadf0659f89f46bf78549b18ae2130f0e2');
INSERT INTO entry VALUES(5,1,1796040000000000000,'{"entry":"settled","request":"req_bbbbbbbbbbbbbbbbbbbbbbbbbb","charged":0,"free":true,"lines":[],"end":{"status":529,"duration_ms":0,"client_gone":false}}',X'a720716974c4feb0079f8f8b1f984dab06c30521efa8e01b4af25b2c74893eee');
INSERT INTO entry VALUES(6,1,1796040000000000000,'{"entry":"held","request":"req_cccccccccccccccccccccccccc","facts":{"at":"2026-11-30T12:00:00Z","stream":true,"model":"claude-opus-5","max_tokens_asked":1000},"arrival":2,"max_tokens_sent":1000,"amount":400}',X'20aac5b06a68ee55996b2541aee9dc2fceba2d3f95d78dff64c311dd58e30cad');
INSERT INTO entry VALUES(7,1,1796040000000000000,'{"entry":"released","request":"req_cccccccccccccccccccccccccc","reason":"the upstream cannot be reached","end":{"status":502,"duration_ms":9,"client_gone":false}}',X'164fc1e1ffdcc34a69bf32394d12bfb4f8206c4b04869f0f9ee98e2ab4217fb2');
INSERT INTO entry VALUES(8,1,1796040000000000000,'{"entry":"held","request":"req_dddddddddddddddddddddddddd","facts":{"at":"2026-11-30T12:00:00Z","stream":true,"model":"claude-opus-5","max_tokens_asked":1000},"arrival":3,"max_tokens_sent":1000,"amount":700}',X'264cb033b962a54fe39744f467dbcccc917592ce9aa4fe60037287356dad224c');
INSERT INTO entry VALUES(9,1,1796040000000000000,'{"entry":"kept","request":"req_dddddddddddddddddddddddddd","charged":700,"reason":"reset"}',X'd59fe0dad620602759002e4ca1253edafa22956a060aa00db5a832d34b1c86c1');
INSERT INTO entry VALUES(10,1,1796040000000000000,'{"entry":"corrected","request":"req_dddddddddddddddddddddddddd","charged":100,"reason":"the provider''s console shows it"}',X'67e08363b9a9dd74832e81d277247b4887f10b7f0121e002b4d76e5d0c01bd39');
INSERT INTO entry VALUES(11,1,1796040000000000000,'{"entry":"topped_up","by":1000,"cap":3000}',X'e393d73990abb0275166c1c46ddd326ddc027ae7852618d13bc4204bdb3427bb');
INSERT INTO entry VALUES(12,1,1796040000000000000,'{"entry":"held","request":"req_eeeeeeeeeeeeeeeeeeeeeeeeee","facts":{"at":"2026-11-30T12:00:00Z","stream":true,"model":"claude-opus-5","max_tokens_asked":1000},"arrival":4,"max_tokens_sent":1000,"amount":900}',X'3d7202a21bd859deb94bbf8f4d969c91ab7a1d9d5047d1b7b03da58d118b9ae2');
INSERT INTO entry VALUES(13,1,1796040000000000000,'{"entry":"settled","request":"req_eeeeeeeeeeeeeeeeeeeeeeeeee","charged":1000,"free":false,"lines":[],"end":{"duration_ms":0,"client_gone":false}}',X'3bf1ab15b4dd9a5755f79a5999836b4c9b02bc2f21c990eb08037de32aa85ffd');
INSERT INTO entry VALUES(14,1,1796040000000000000,'{"entry":"overrun","request":"req_eeeeeeeeeeeeeeeeeeeeeeeeee","by":100}',X'084fa3380030532ff832b2a9defcd90bcc087370bbc0d3b803ce6d30449c660e');
INSERT INTO entry VALUES(15,1,1796040000000000000,'{"entry":"closed","reason":{"why":"overrun","what":"by 100"}}',X'b2314752fb0913b46b9242f7f027528a869e1cf23f352dbbfbc41ee49b1bb194');
INSERT INTO entry VALUES(16,1,1796040000000000000,'{"entry":"refused","request":"req_ffffffffffffffffffffffffff","facts":{"at":"2026-11-30T12:00:00Z","stream":true,"model":"claude-opus-5","max_tokens_asked":1000},"arrival":5,"status":402,"reason":"cap reached","needed":5000}',X'159c54c5b9fd7b9423a28a4351ae33e31bf9909bcedc95780232300e020cdd40');
INSERT INTO entry VALUES(17,1,1796040000000000000,'{"entry":"refused_more","count":7}',X'e93e1f0bc07b1cbe8aa4ef4cb27bb82ce1be36f12ca01110363591135918038f');
INSERT INTO entry VALUES(18,1,1796040000000000000,'{"entry":"ended","end_reason":"overrun","exit_code":1,"signal":null,"free_requests":3}',X'6591fb29100eca339cb6f725f997fd5663b7fca8b064b81f333e94eea4fed628');
CREATE TABLE sum(name TEXT PRIMARY KEY, pico_usd INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO sum VALUES('2026-11-30',1727);
INSERT INTO sum VALUES('held',0);
CREATE TABLE price_file(digest TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT;
INSERT INTO price_file VALUES('d1','# prices');
CREATE TRIGGER entry_is_never_changed BEFORE UPDATE ON entry
       BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END;
CREATE TRIGGER entry_is_never_removed BEFORE DELETE ON entry
       BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END;
COMMIT;
PRAGMA application_id=1818390648; PRAGMA user_version=1;
