import assert from "node:assert/strict";
import { test } from "node:test";
import { GET as health } from "../app/api/health/route";
import { GET as plans } from "../app/api/plans/route";

function asked(query: string) {
  return plans(new Request(`http://localhost/api/plans${query}`));
}

test("it says that it is well", async () => {
  assert.deepEqual(await health().json(), { status: "ok" });
});

test("all plans are told, and what one costs", async () => {
  const all = (await asked("").json()) as { plans: unknown[] };
  assert.equal(all.plans.length, 3);
  const answer = await asked("?plan=team&seats=2&interval=year").json();
  assert.deepEqual(answer, { plan: "team", interval: "year", cents: 24000 });
});

test("what makes no sense is refused", () => {
  assert.equal(asked("?plan=gold").status, 404);
  assert.equal(asked("?plan=team&interval=week").status, 400);
  assert.equal(asked("?plan=team&seats=99").status, 400);
});
