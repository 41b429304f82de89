import assert from "node:assert/strict";
import { test } from "node:test";
import { collect, d, limit, said, SERVER, texts } from "./kit.js";

test("a client that looks for the nodes finds this one", limit, async () => {
	for (const node of ["leader", "follower", "random"]) {
		const found = d.connect("+discover", `${SERVER}&nodePreference=${node}&maxDiscoverAttempts=3`);
		const stream = `shop-${d.name}-found-${node}`;
		await found.appendToStream(stream, said(node));
		assert.deepEqual(texts(await collect(found.readStream(stream))), [node]);
		await found.dispose();
	}
});

test("a client may name its connection and its times", limit, async () => {
	const named = d.connect("", `${SERVER}&connectionName=till-7&keepAliveInterval=10000&keepAliveTimeout=10000&defaultDeadline=30000`);
	const stream = `shop-${d.name}-named`;
	await named.appendToStream(stream, said("here"));
	assert.deepEqual(texts(await collect(named.readStream(stream))), ["here"]);
	await named.dispose();
});

test("a wrong password is refused, and the right one not by that", limit, async (t) => {
	if (!SERVER.includes("@")) return t.skip("this server asks for no user");
	const wrong = d.connect("", SERVER.replace(/:[^:@]+@/, ":wrong@"));
	const stream = `shop-${d.name}-locked`;
	await assert.rejects(wrong.appendToStream(stream, said("never")), d.AccessDeniedError);
	await assert.rejects(collect(wrong.readAll({ maxCount: 1 })), d.AccessDeniedError);
	const [username, password] = SERVER.split("@")[0].split(":");
	await wrong.appendToStream(stream, said("right"), { credentials: { username, password } });
	assert.deepEqual(texts(await collect(wrong.readStream(stream, { credentials: { username, password } }))), ["right"]);
	await wrong.dispose();
});
