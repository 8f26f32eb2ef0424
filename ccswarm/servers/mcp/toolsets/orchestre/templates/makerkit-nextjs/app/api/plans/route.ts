import { costs, PLANS, planOf } from "../../../lib/plans";

/** All plans; with ?plan=ID&seats=N&interval=month|year what that costs, in cents. */
export function GET(request: Request) {
  const asked = new URL(request.url).searchParams;
  const id = asked.get("plan");
  if (id === null) {
    return Response.json({ plans: PLANS });
  }
  const plan = planOf(id);
  if (!plan) {
    return Response.json({ error: "there is no such plan" }, { status: 404 });
  }
  const interval = asked.get("interval") ?? "month";
  if (interval !== "month" && interval !== "year") {
    return Response.json({ error: "interval is month or year" }, { status: 400 });
  }
  try {
    return Response.json({ plan: id, interval, cents: costs(plan, Number(asked.get("seats") ?? 1), interval) });
  } catch (error) {
    if (error instanceof RangeError) {
      return Response.json({ error: error.message }, { status: 400 });
    }
    throw error;
  }
}
